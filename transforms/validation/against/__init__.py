"""Compares a dataset with the source that it was made from, record by record."""
