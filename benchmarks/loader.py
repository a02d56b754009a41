"""Compares reading a dataset for training: `load`, hand-tuned tf.data, TFDS and NumPy alone.

All read the same shards once per round, in batches of 32, in the same process. The order changes from round
to round, so that other work on the machine affects all of them. The ratios are to
the hand-tuned pipeline in each round, also by processor time, which other programs influence less.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from command import Benchmark, Found, run_benchmark
from conversion import kept_dataset
from inputs import photos
from rounds import SPEED, SPEED_BY_PROCESSOR, Turn, summarize, take_turns, timed

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from shardwright.loader import Records, load

BATCH = 32
SIDE = 224
Epoch = Callable[[], Iterable[Any]]


def by_hand(directory: Path, shuffle: bool) -> tf.data.Dataset:
    """The pipeline that an expert of tf.data would write: the target to reach."""
    description = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        found = tf.io.parse_single_example(record, description)
        image = tf.io.decode_jpeg(found["image/encoded"], channels=3)
        return tf.ensure_shape(image, (SIDE, SIDE, 3)), found["image/class/label"]

    data = tf.data.Dataset.list_files(str(directory / "train-*"), shuffle=shuffle, seed=0)
    data = data.interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE)
    if shuffle:
        data = data.shuffle(4096, seed=0)
    return data.map(parse, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH).prefetch(tf.data.AUTOTUNE)


def by_tfds(directory: Path, shuffle: bool) -> tf.data.Dataset:
    """Reads the same files with TFDS by the sidecars of the conversion, only picture and class."""
    import tensorflow_datasets as tfds

    wanted = tfds.decode.PartialDecoding({"image/encoded": True, "image/class/label": True})
    builder = tfds.builder_from_directory(directory)
    read = tfds.ReadConfig(try_autocache=False)  # otherwise it would read a cache instead of the shards
    data = builder.as_dataset(split="train", shuffle_files=shuffle, decoders=wanted, read_config=read)
    if shuffle:
        data = data.shuffle(4096, seed=0)
    return data.batch(BATCH).prefetch(tf.data.AUTOTUNE)


def count_images(read: Epoch) -> int:
    """Reads all images once; returns their number."""
    return sum(len(next(iter(batch.values())) if isinstance(batch, dict) else batch[1]) for batch in read())


def measure(options: argparse.Namespace) -> Found:
    """Reads a dataset with all readers in turn."""
    given = photos(options, options.count)
    dataset = kept_dataset(options.work, given.folder)
    records = Records(dataset)
    readers: dict[str, Epoch] = {}
    ratios = {}
    for shuffle, order in ((False, "in order"), (True, "shuffled")):
        hand, tfds = by_hand(dataset, shuffle), by_tfds(dataset, shuffle)
        ours = load(dataset, batch_size=BATCH, shuffle=shuffle)
        epochs: dict[str, Epoch] = {
            "hand-tuned tf.data": lambda data=hand: data,
            "`load`": lambda data=ours: data,
            "TFDS, the same files": lambda data=tfds: data,
            "`Records`, without TensorFlow": lambda shuffle=shuffle: records.batches(BATCH, shuffle=shuffle),
        }
        for name, read in epochs.items():
            readers[f"{order}: {name}"] = read
            ratios[f"{order}: {name}"] = f"{order}: hand-tuned tf.data"

    def way(read: Epoch) -> Callable[[], Turn]:
        return lambda: timed(lambda: count_images(read))

    # The first round warms up: tracing, imports and the page cache must not count.
    ways = {name: way(read) for name, read in readers.items()}
    found = take_turns(ways, options.rounds, warm_up=True, shuffled=True)
    units = {SPEED: "images/s", SPEED_BY_PROCESSOR: "images/s"}
    return Found(
        f"{given.text}; stored as {SIDE}x{SIDE}, batches of {BATCH}", summarize(found, units, ratios)
    )


BENCHMARK = Benchmark(
    "loader",
    "Compares reading a dataset for training: `load`, hand-tuned tf.data, TFDS and NumPy alone.",
    measure,
    quick={"count": 600, "rounds": 3},
    full={"count": 3000, "rounds": 9},
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
