"""The shard: the unit of work, retry, resume and verification."""
