"""Statistics of a dataset, added up without holding the dataset in memory."""
