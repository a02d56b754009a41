"""The versions of a dataset: where they are, which one is the latest, and which stay."""
