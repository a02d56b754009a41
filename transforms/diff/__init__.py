"""Two datasets compared image by image, from their shards' ledgers."""
