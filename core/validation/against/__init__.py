"""Compares a dataset record by record with the source that it was made from."""
