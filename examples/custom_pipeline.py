"""A custom pipeline: Shardwright's steps, real `tf.train.Example` messages and Beam's own writer.

Usage: python custom_pipeline.py FOLDER_OF_CLASS_FOLDERS OUTPUT_PREFIX
"""

import sys
from pathlib import Path

if __name__ == "__main__" and len(sys.argv) != 3:  # before the imports below, which take seconds
    print(
        "custom_pipeline.py needs a folder with one subfolder per class, and a prefix for the "
        "names of the shards, such as: python custom_pipeline.py photos/ out/photos",
        file=sys.stderr,
    )
    sys.exit(2)

import apache_beam as beam
import tensorflow as tf

from shardwright.transforms import BuildExamples, DecodeAndResize, ReadImages

SETTINGS = {"resize": 224, "fit": "pad"}


def add_brightness(example: tf.train.Example) -> tf.train.Example:
    """Adds a custom feature: the mean brightness of the image, 0 to 255."""
    features = example.features.feature
    pixels = tf.io.decode_image(features["image/encoded"].bytes_list.value[0])
    features["image/brightness"].float_list.value.append(float(tf.reduce_mean(tf.cast(pixels, tf.float32))))
    return example


def main(folder: str, output: str) -> None:
    """Converts the images and prints those that were left out."""
    labels = sorted(path.name for path in Path(folder).iterdir() if path.is_dir())
    paths = [str(path) for path in Path(folder).glob("*/*")]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        examples, quarantined = (
            pipeline
            | "Name" >> beam.Create(paths)  # str
            | ReadImages(**SETTINGS)  # ImageElement
            | DecodeAndResize(**SETTINGS)  # ImageElement
            | BuildExamples(labels=labels, as_proto=True, **SETTINGS)
        )  # tf.train.Example, Entry
        _ = (
            examples
            | "AddBrightness" >> beam.Map(add_brightness)  # tf.train.Example
            | "Write"
            >> beam.io.WriteToTFRecord(
                output,
                file_name_suffix=".tfrecord",
                num_shards=2,
                coder=beam.coders.ProtoCoder(tf.train.Example),
            )
        )
        _ = quarantined | "Report" >> beam.Map(lambda entry: print(entry.uri, entry.reason))


if __name__ == "__main__":
    main(*sys.argv[1:])
