"""The versions of a dataset: where they are, which one is the latest, and which are kept."""
