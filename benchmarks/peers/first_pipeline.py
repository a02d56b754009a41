"""Peer: the Beam pipeline that everyone writes first, on the in-process runner."""

from __future__ import annotations

import apache_beam as beam
import common
import tensorflow as tf
from apache_beam.io import fileio
from apache_beam.io.tfrecordio import WriteToTFRecord
from apache_beam.options.pipeline_options import PipelineOptions


def to_example(file: fileio.ReadableFile, classes: list[str]) -> bytes:
    """Turns one matched file into a serialized `tf.train.Example`.

    Args:
      file: Image file.
      classes: Names of the class folders, sorted.

    Returns:
      The serialized record.
    """
    label = classes.index(file.metadata.path.split("/")[-2])
    image = common.resize_jpeg(file.read())
    features = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return bytes(example.SerializeToString())


def main() -> None:
    """Runs the pipeline."""
    source, output = common.parse_folders(__doc__)
    classes = sorted(path.name for path in source.iterdir() if path.is_dir())
    # The default runner may try to download a binary first, which would measure the network.
    options = PipelineOptions(["--runner=FnApiRunner"])
    with beam.Pipeline(options=options) as pipeline:
        _ = (
            pipeline
            | fileio.MatchFiles(f"{source}/*/*.jpg")
            | fileio.ReadMatches()
            | beam.Map(to_example, classes)
            | WriteToTFRecord(
                str(output / "train"),
                file_name_suffix=".tfrecord",
                num_shards=common.SHARDS,
            )
        )


if __name__ == "__main__":
    main()
