"""What a record and a dataset look like. Imports neither Beam nor TensorFlow."""

__version__ = "0.1.0"
