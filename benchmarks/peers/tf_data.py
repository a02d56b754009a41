"""Peer: a `tf.data` pipeline that uses all cores, written with `tf.io.TFRecordWriter`."""

from __future__ import annotations

import contextlib

import common
import tensorflow as tf


def load(path: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads, resizes and encodes one image with TensorFlow.

    Args:
      path: Path of the image.
      label: Its class.

    Returns:
      The JPEG and the label.
    """
    pixels = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    # Without antialias=True, tf.image.resize skips pixels, and the results would not be comparable.
    pixels = tf.image.resize(pixels, (common.SIZE, common.SIZE), "bilinear", antialias=True)
    pixels = tf.saturate_cast(tf.round(pixels), tf.uint8)
    return tf.io.encode_jpeg(pixels, quality=common.QUALITY), label


def main() -> None:
    """Runs the pipeline."""
    source, output = common.parse_folders(__doc__)
    paths, labels = zip(*common.list_images(source), strict=True)
    # A batch costs one step in Python per 64 images, instead of one per image.
    dataset = (
        tf.data.Dataset.from_tensor_slices((list(paths), list(labels)))
        .map(load, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
        .batch(64)
        .prefetch(tf.data.AUTOTUNE)
    )
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(tf.io.TFRecordWriter(common.shard_path(output, shard)))
            for shard in range(common.SHARDS)
        ]
        number = 0
        for images, classes in dataset.as_numpy_iterator():
            for image, label in zip(images, classes, strict=True):
                features = {
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writers[number % common.SHARDS].write(example.SerializeToString())
                number += 1


if __name__ == "__main__":
    main()
