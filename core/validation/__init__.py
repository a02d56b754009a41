"""Validation: checks a record, a shard and a whole dataset."""
