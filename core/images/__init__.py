"""One image: its format, its pixels, its geometry and its stored bytes."""
