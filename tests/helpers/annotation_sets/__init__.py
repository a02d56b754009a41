"""Small datasets in each annotation format, of the example pictures."""
