"""Compares two datasets image by image, using the ledgers of their shards."""
