"""Compares reading a dataset for training: `load`, hand-tuned tf.data, TFDS and NumPy alone.

All read the same shards once per round, in batches of 32, in the same process. The order changes from round
to round, so that other work on the machine affects all of them. It prints the median ratio to the
hand-tuned pipeline in each round, and the processor time, which other programs influence less.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from shardwright.loader import Records, load
from shardwright.pipelines.convert import convert

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


def measure(readers: dict[str, Epoch], rounds: int) -> dict[str, list[tuple[float, float, int]]]:
    """Returns seconds, processor seconds and number of pictures for each reader and round."""
    for reader in readers.values():  # warms up: tracing, imports and the page cache must not count
        for _ in reader():
            pass
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in readers}
    for _ in range(rounds):
        for name in random.sample(list(readers), len(readers)):
            started, used, pictures = time.perf_counter(), time.process_time(), 0
            for batch in readers[name]():
                pictures += len(next(iter(batch.values())) if isinstance(batch, dict) else batch[1])
            found[name].append((time.perf_counter() - started, time.process_time() - used, pictures))
    return found


def main() -> None:
    """Converts once, measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path, required=True, help="folder of photographs")
    parser.add_argument(
        "--work", type=Path, default=Path("build/bench/loader"), help="where the dataset goes"
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="where all figures go")
    options = parser.parse_args()

    dataset = options.work / f"{options.photos.name}-{SIDE}"
    if not (dataset / "dataset.json").exists():
        convert(input=str(options.photos), output=str(dataset), resize=SIDE, shards=8, overwrite=True)
    records = Records(dataset)
    hand, tfds, ours = {}, {}, {}
    for shuffle in (False, True):
        hand[shuffle], tfds[shuffle] = by_hand(dataset, shuffle), by_tfds(dataset, shuffle)
        ours[shuffle] = load(dataset, batch_size=BATCH, shuffle=shuffle)
    figures = {}
    for shuffle in (False, True):
        print(f"{len(records)} JPEGs of {SIDE}x{SIDE}, {'shuffled' if shuffle else 'in order'}", flush=True)
        readers: dict[str, Epoch] = {
            "tf.data by hand": lambda data=hand[shuffle]: data,
            "shardwright load": lambda data=ours[shuffle]: data,
            "TFDS": lambda data=tfds[shuffle]: data,
            "shardwright Records": lambda shuffle=shuffle: records.batches(BATCH, shuffle=shuffle),
        }
        found = measure(readers, options.rounds)
        base = found["tf.data by hand"]
        for name, rounds in found.items():
            pictures = rounds[0][2]
            row = {
                "pictures": pictures,
                "pictures_per_second": pictures / median(seconds for seconds, _, _ in rounds),
                "time_ratio": median(mine[0] / other[0] for mine, other in zip(rounds, base, strict=True)),
                "cpu_ratio": median(mine[1] / other[1] for mine, other in zip(rounds, base, strict=True)),
            }
            print(
                f"  {name:20} {row['pictures_per_second']:7.0f} pictures/s   time x{row['time_ratio']:.2f}   "
                f"processor x{row['cpu_ratio']:.2f}",
                flush=True,
            )
            figures[f"{name}, {'shuffled' if shuffle else 'in order'}"] = row
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
