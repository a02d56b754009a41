"""A rebuild: converts what changed since the last version, reuses the rest, checks it and publishes it."""
