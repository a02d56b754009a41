"""Statistics: what is in a dataset, added up without holding it."""
