"""Converts images to records: one, or many in order."""
