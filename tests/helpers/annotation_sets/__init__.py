"""Small datasets in each annotation format, made of the example pictures."""
