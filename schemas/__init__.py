"""What a record and a dataset look like. Imports neither Beam nor TensorFlow.

It also declares what users configure (`configuration/`), what a dataset says about itself (statistics,
drift), and the files that other programs read (`sidecars/`).
"""

__version__ = "0.1.0"
