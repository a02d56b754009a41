"""Measures how fast single records are read, in order and at random.

It makes a dataset of the photos, then compares in several rounds, in turn:

- `Records`, with and without checksums, as dicts, and as raw bytes;
- the package `tfrecord`, which reads in order, from any position in a shard, and parses with protobuf;
- `tf.data.TFRecordDataset`, in order, and parsed by `tf.io.parse_single_example`.

For random order, where the others have no method, it is compared with code that a program could contain: seek
by the index, read, and parse with TensorFlow's `tf.train.Example`. The files are in the page cache, so this
measures the programs and not the disk.

    python benchmarks/random_access.py --photos photos --work /tmp/random_access
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from shardwright.loader import Records
from shardwright.pipelines.convert import convert
from shardwright.schemas.ledger import load_index

#: The package tfrecord defines protobuf messages with TensorFlow's names, so one process cannot import both.
_PEER = """
import sys
from tfrecord.reader import tfrecord_loader
for line in sys.stdin:
    print(sum(1 for path in line.rstrip("\\n").split("\\t") for _ in tfrecord_loader(path, None)), flush=True)
"""


class Peer:
    """A process that reads shards with the package tfrecord."""

    def __init__(self) -> None:
        """Starts the process."""
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read(self, shards: list[str]) -> int:
        """Reads all records of some shards; returns their number."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("\t".join(shards) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def make_ways(dataset: Path, seed: int) -> dict[str, dict[str, Callable[[], int]]]:
    """Returns the ways to measure: task -> way -> function that returns the number of records read."""
    peer = Peer()
    records, careless = Records(dataset), Records(dataset, verify=False)
    shards = sorted(str(path) for path in dataset.glob("train-*.tfrecord"))
    indexes = [load_index((dataset / "_index" / f"{Path(path).stem}.idx").read_bytes()) for path in shards]
    order = list(range(len(records)))
    random.Random(seed).shuffle(order)
    places = [(path, *place) for path, index in zip(shards, indexes) for place in index]
    spec = {
        name: tf.io.FixedLenFeature([], tf.int64 if type(value) is int else tf.string)
        for name, value in records[0].items()
    }

    def each(items: object) -> int:
        return sum(1 for _ in items)  # type: ignore[attr-defined]

    def by_hand() -> int:
        files = {path: open(path, "rb") for path in shards}  # noqa: SIM115 (closed below)
        for i in order:
            path, offset, size = places[i]
            files[path].seek(offset)
            tf.train.Example.FromString(files[path].read(size)[12:-4])
        for file in files.values():
            file.close()
        return len(order)

    def parsed() -> int:
        data = tf.data.TFRecordDataset(shards)
        return each(data.map(lambda example: tf.io.parse_single_example(example, spec)))

    return {
        "in order, raw bytes": {
            "Records": lambda: each(records._stored()),
            "TFRecordDataset": lambda: each(tf.data.TFRecordDataset(shards)),
        },
        "in order, parsed": {
            "Records": lambda: each(records),
            "Records without checksums": lambda: each(careless),
            "tfrecord": lambda: peer.read(shards),
            "TFRecordDataset": parsed,
        },
        "at random, raw bytes": {
            "Records": lambda: each(records.raw(i) for i in order),
            "Records without checksums": lambda: each(careless.raw(i) for i in order),
        },
        "at random, parsed": {
            "Records": lambda: each(records[i] for i in order),
            "Records without checksums": lambda: each(careless[i] for i in order),
            "seek, read, tf.train.Example": by_hand,
        },
        "at random, decoded": {
            "Records, one thread": lambda: each(records.image(i) for i in order),
            "Records.batches": lambda: sum(
                len(images) for images, _ in records.batches(64, shuffle=True, seed=seed)
            ),
        },
        "in order, decoded": {
            "Records.batches": lambda: sum(len(images) for images, _ in records.batches(64)),
        },
    }


def main() -> None:
    """Measures, and prints median records per second."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--photos", required=True, help="a folder of photos")
    parser.add_argument("--work", required=True, help="a folder for the dataset; what is there is kept")
    parser.add_argument("--size", default="224", help="of the stored pictures")
    parser.add_argument("--shards", default=8, type=int, help="of the dataset")
    parser.add_argument("--rounds", default=5, type=int, help="how often each way is measured")
    options = parser.parse_args()
    dataset = Path(options.work) / "dataset"
    if not (dataset / "dataset.json").exists():
        shutil.rmtree(dataset, ignore_errors=True)
        convert(input=options.photos, output=str(dataset), resize=options.size, shards=options.shards)
    ways = make_ways(dataset, seed=1)
    rates: dict[tuple[str, str], list[float]] = {}
    for _ in range(options.rounds + 1):  # the first one warms up
        for task, of_task in ways.items():
            for name, run in of_task.items():
                begin = time.perf_counter()
                count = run()
                rates.setdefault((task, name), []).append(count / (time.perf_counter() - begin))
    print(
        f"{len(Records(dataset)):,} records in {options.shards} shards; medians of {options.rounds} rounds\n"
    )
    for task, of_task in ways.items():
        print(task)
        ours = 0.0
        for name in of_task:
            rate = statistics.median(rates[task, name][1:])
            ours = ours or rate
            print(f"  {name:<30} {rate:>10,.0f} records/s  {ours / rate:>6.2f}x")
    print("\nThe last column: how many times as fast as it the first of its task is.")


if __name__ == "__main__":
    main()
