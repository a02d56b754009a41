"""One image: its format, its pixels, its geometry and its stored bytes.

Almost half of it is in `formats/`: strict readers of file formats. They limit the work of a decoder before it
begins, and find missing parts that a decoder would fill in.
"""
