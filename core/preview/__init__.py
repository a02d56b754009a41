"""Shows the contents of a record: its values as text, its image with boxes and masks."""
