"""Statistics that can be merged: adding the parts in any order gives the same bytes."""
