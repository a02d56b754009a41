"""Sources: each turns an input into `ImageRef`s. One module per kind of input.

Most formats of annotations stand on one of three engines: `tables/` (rows), `pairs.py` (a file for each
image) and `documents.py` (a file for many images).
"""
