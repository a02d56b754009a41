"""Records: builds `tf.train.Example` messages, and reads TFRecord files, including damaged ones.

Most of it reads records of other programs, whose features are recognized by their names and encodings, and
the sound records of damaged files.
"""
