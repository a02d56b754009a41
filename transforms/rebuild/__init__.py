"""A rebuild: what changed since the last version, converted; the rest taken over; gated and published."""
