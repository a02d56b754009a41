"""Compares validation with its limits, and with reading the same files with TensorFlow.

It makes a dataset of the photos, then measures in several rounds, in turn:

- full validation (`shardwright validate`, which decodes every image), compared with Pillow decoding the same
  bytes in as many threads, and with `tf.data` with `parse_single_example` and `decode_jpeg`;
- `--fast`, also with all records in one shard as by default, and the checks of a conversion (frames, sums and
  counts), compared with reading, SHA-256 and CRC-32C alone, which limit all of them;
- the whole of `validate()`, and the same for a dataset of one image, which is the start-up time.

Everything runs in one process, in another order each round, so that other work on the machine affects all of
them equally. The files are in the page cache, so this measures the programs and not the disk.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import google_crc32c
import tensorflow as tf
from command import Benchmark, Found, run_benchmark
from conversion import kept_dataset
from inputs import photos
from PIL import Image
from results import Result
from rounds import SPEED, SPEED_BY_PROCESSOR, Turn, summarize, take_turns, timed

from shardwright.core.concurrency.resources import usable_cpus
from shardwright.core.hash_buckets import bucket_count
from shardwright.core.validation.duplicates import bucket_rows
from shardwright.core.validation.shard import ShardTask, check_shard
from shardwright.loader import Records
from shardwright.pipelines.places import resolve_target, schema_of
from shardwright.pipelines.validate import list_tasks, validate
from shardwright.schemas.codes import CheckDepth

_CHUNK = 16
_BLOCK = 1 << 18
KEPT = "kept"
BYTES = "bytes by processor time"
#: The measurements that are compared, and with what.
COMPARED = {
    "every image decoded": "decoding alone",
    "tf.data, parse, decode_jpeg": "decoding alone",
    "--fast": "read, sha256 and crc32c alone",
    "--fast, one shard": "read, sha256 and crc32c alone",
    "frames and checksums": "read, sha256 and crc32c alone",
    "validate(fast)": "validate()",
}


def make_ways(dataset: Path, whole_shard: Path, one: Path) -> dict[str, Callable[[], int]]:
    """Returns the ways to measure: name -> function that returns the number of records read.

    Args:
      dataset: A dataset in several shards.
      whole_shard: The same images in one shard.
      one: A dataset of one image.
    """
    target = resolve_target(str(dataset))
    schema, tasks = schema_of(target), list(list_tasks(target))
    single = list(list_tasks(resolve_target(str(whole_shard))))
    files = [task.path for task in tasks]
    records = Records(dataset)
    lengths = [len(records.raw(i)) for i in range(len(records))]
    pictures = [record["image/encoded"] for record in records]
    executor = ThreadPoolExecutor(usable_cpus())
    spec = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }

    def check(depth: CheckDepth, tasks: list[ShardTask] = tasks) -> int:
        seen, buckets = 0, bucket_count(len(records))
        check_all = map if depth >= CheckDepth.FULL else executor.map
        for found in check_all(lambda task: check_shard(task, schema, depth), tasks):
            assert not found.findings, found.findings[0]
            for _ in bucket_rows(found.rows, buckets):
                pass
            seen += found.records
        return seen

    def decode(some: list[bytes]) -> int:
        for picture in some:
            Image.open(io.BytesIO(picture)).load()
        return len(some)

    def limit() -> int:
        size = _CHUNK if len(pictures) > _CHUNK**2 else 1
        return sum(executor.map(decode, [pictures[i : i + size] for i in range(0, len(pictures), size)]))

    def checksums() -> int:
        for path in files:
            digest = hashlib.sha256()
            with open(path, "rb") as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
                    google_crc32c.value(block)
        return len(lengths)

    def by_tensorflow() -> int:
        data = tf.data.TFRecordDataset(files, num_parallel_reads=tf.data.AUTOTUNE)

        def parse(record: tf.Tensor) -> tf.Tensor:
            return tf.shape(tf.io.decode_jpeg(tf.io.parse_single_example(record, spec)["image/encoded"]))

        data = data.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
        return sum(1 for _ in data.batch(32)) and len(lengths)

    def whole(path: Path, mode: str) -> int:
        report = validate(str(path), mode=mode, report=str(dataset.parent / "report.json"))
        assert report.sound
        return report.records

    return {
        "every image decoded": lambda: check(CheckDepth.FULL),
        "decoding alone": limit,
        "tf.data, parse, decode_jpeg": by_tensorflow,
        "--fast": lambda: check(CheckDepth.FAST),
        "--fast, one shard": lambda: check(CheckDepth.FAST, single),
        "frames and checksums": lambda: check(CheckDepth.FRAMES),
        "read, sha256 and crc32c alone": checksums,
        "validate()": lambda: whole(dataset, "full"),
        "validate(fast)": lambda: whole(dataset, "fast"),
        "validate() of one image": lambda: whole(one, "full"),
    }


def with_bytes(run: Callable[[], int], each: float) -> Turn:
    """Times a way; adds the bytes per second of processor time to its measures.

    Args:
      run: Function that returns how many records it read.
      each: Mean size of a record, in bytes.
    """
    turn = timed(run)
    return {**turn, BYTES: turn[SPEED_BY_PROCESSOR] * each / 1e9}


def measure(options: argparse.Namespace) -> Found:
    """Measures all ways in turn, for records of each size."""
    results: list[Result] = []
    texts = []
    for side in options.sides.split(","):
        resize = ["--resize=" + side] if side != KEPT else []
        given = photos(options, options.count)
        dataset, whole_shard = (
            kept_dataset(options.work, given.folder, [*resize, f"--shards={count}"]) for count in (8, 1)
        )
        one = kept_dataset(options.work, given.folder, [*resize, "--shards=1", "--limit=1"])
        ways = make_ways(dataset, whole_shard, one)
        title = "photographs as they are" if side == KEPT else f"{side}x{side}"

        size = sum(path.stat().st_size for path in dataset.glob("*.tfrecord"))
        each = size / len(Records(dataset))
        turns = {f"{title}: {name}": partial(with_bytes, run, each) for name, run in ways.items()}
        found = take_turns(turns, options.rounds, warm_up=True, shuffled=True)
        ratios = {f"{title}: {name}": f"{title}: {other}" for name, other in COMPARED.items()}
        units = {SPEED: "records/s", SPEED_BY_PROCESSOR: "records/s", BYTES: "GB/s"}
        results += summarize(found, units, ratios, only=(SPEED, SPEED_BY_PROCESSOR))
        texts.append(f"{title}: {each / 1000:.0f} kB each")
    return Found(f"{given.text}; stored as {', '.join(texts)}", results)


BENCHMARK = Benchmark(
    "validation",
    "Compares validation with its limits, and with reading the same files with TensorFlow.",
    measure,
    quick={"count": 600, "rounds": 2},
    full={"count": 3000, "rounds": 5, "sides": f"224,{KEPT}"},
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
