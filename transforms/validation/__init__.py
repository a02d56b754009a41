"""Validation: what a record, a shard and a whole dataset have to be."""
