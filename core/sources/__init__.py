"""Sources: each turns an input into `ImageRef`s. One module per kind of input."""
