"""Shows what stands in a record: its values as text, its picture with boxes and masks."""
