"""Peer: a plain loop in one thread, with Pillow and `tf.io.TFRecordWriter`."""

from __future__ import annotations

import contextlib
from pathlib import Path

import common
import tensorflow as tf


def main() -> None:
    """Runs the loop."""
    source, output = common.parse_folders(__doc__)
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(tf.io.TFRecordWriter(common.shard_path(output, shard)))
            for shard in range(common.SHARDS)
        ]
        for number, (path, label) in enumerate(common.list_images(source)):
            image = common.resize_jpeg(Path(path).read_bytes())
            features = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writers[number % common.SHARDS].write(example.SerializeToString())


if __name__ == "__main__":
    main()
