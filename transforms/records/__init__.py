"""Records: building `tf.train.Example` messages, and reading TFRecord files whatever their state."""
