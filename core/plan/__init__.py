"""The plan: split, shard and position of every image as pure functions of seed and key."""
