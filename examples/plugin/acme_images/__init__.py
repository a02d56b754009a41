"""A source and a decoder for Shardwright."""
