"""The functions that do the work, one package for each subject. None of them needs Beam or TensorFlow."""
