"""Statistics that can be merged: parts added in any order give the same bytes."""
