"""Records: builds `tf.train.Example` messages, and reads TFRecord files, including damaged ones."""
