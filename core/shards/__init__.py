"""Shards: the units of work, retry, resume and verification."""
