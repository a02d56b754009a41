"""Measures how fast single records are read, in order and at random.

It makes a dataset of the photos, then compares in several rounds, in turn:

- `Records`, with and without checksums, as dicts, and as raw bytes;
- the package `tfrecord`, which reads in order, from any position in a shard, and parses with protobuf;
- `tf.data.TFRecordDataset`, in order, and parsed by `tf.io.parse_single_example`.

For random order, where the others have no method, it is compared with code that a program could contain: seek
by the index, read, and parse with TensorFlow's `tf.train.Example`. The files are in the page cache, so this
measures the programs and not the disk.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from command import Benchmark, Found, run_benchmark
from conversion import kept_dataset
from inputs import photos
from rounds import SPEED, SPEED_BY_PROCESSOR, Turn, summarize, take_turns, timed

from shardwright.loader import Records
from shardwright.schemas.ledger import load_index

PEER = "tfrecord"
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

    def each(items: Iterable[object]) -> int:
        return sum(1 for _ in items)

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
            PEER: lambda: peer.read(shards),
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


def measure(options: argparse.Namespace) -> Found:
    """Reads a dataset in all ways in turn."""
    given = photos(options, options.count)
    tasks = make_ways(kept_dataset(options.work, given.folder), seed=1)

    def way(read: Callable[[], int]) -> Callable[[], Turn]:
        return lambda: timed(read)

    ways = {f"{task}: {name}": way(read) for task, some in tasks.items() for name, read in some.items()}
    ratios = {
        f"{task}: {name}": f"{task}: {next(iter(some))}" for task, some in tasks.items() for name in some
    }
    found = take_turns(ways, options.rounds, warm_up=True)
    units = {SPEED: "records/s", SPEED_BY_PROCESSOR: "records/s"}
    results = summarize(found, units, ratios)
    # The package tfrecord runs in another process, whose processor time is not measured.
    elsewhere = (PEER, SPEED_BY_PROCESSOR)
    kept = [result for result in results if (result.subject.rpartition(": ")[2], result.measure) != elsewhere]
    return Found(f"{given.text}; stored as 224x224", kept)


BENCHMARK = Benchmark(
    "random_access",
    "Measures how fast single records are read, in order and at random.",
    measure,
    quick={"count": 600, "rounds": 2},
    full={"count": 3000, "rounds": 5},
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
