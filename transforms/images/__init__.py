"""One image: what it is, its pixels, its geometry, its bytes as they are stored."""
