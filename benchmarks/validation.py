"""Compares validation with its limits, and with reading the same files with TensorFlow.

It makes a dataset of the photos, then measures in several rounds, in turn:

- full validation (`shardwright validate`, which decodes every image), compared with Pillow decoding the same
  bytes in as many threads, and with `tf.data` with `parse_single_example` and `decode_jpeg`;
- `--fast`, and the checks of a conversion (frames, checksums and counts), compared with reading, SHA-256 and
  CRC-32C alone, which limit both;
- the whole of `validate()`, minus the same for a dataset of one image, which is the start-up time.

Everything runs in one process, in another order each round, so that other work on the machine affects all of
them equally. It prints medians of time and of processor time, which other programs influence less. The files
are in the page cache, so this measures the programs and not the disk.

    python benchmarks/validation.py --photos photos --work /tmp/validation
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import google_crc32c
import tensorflow as tf
from PIL import Image

from shardwright.loader import Records
from shardwright.pipelines.convert import convert
from shardwright.pipelines.datasets import resolve_target, schema_of
from shardwright.pipelines.validate import list_tasks, validate
from shardwright.transforms.buckets import bucket_count
from shardwright.transforms.concurrency.workers import usable_cpus
from shardwright.transforms.validation.duplicate_keys import bucket_rows
from shardwright.transforms.validation.shard import Depth, check_shard

_CHUNK = 16
_BLOCK = 1 << 18
#: The measurements, and what each is compared with.
_DECODED = ("every image decoded", "decoding alone")
_FAST = ("--fast", "read, sha256 and crc32c alone")


def make_ways(dataset: Path, one: Path) -> dict[str, Callable[[], int]]:
    """Returns the ways to measure: name -> function that returns the number of records read."""
    target = resolve_target(str(dataset))
    schema, tasks = schema_of(target), list(list_tasks(target))
    files = [task.path for task in tasks]
    records = Records(dataset)
    lengths = [len(records.raw(i)) for i in range(len(records))]
    pictures = [record["image/encoded"] for record in records]
    executor = ThreadPoolExecutor(usable_cpus())
    spec = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }

    def check(depth: Depth) -> int:
        seen = 0
        for task in tasks:
            found = check_shard(task, schema, depth, executor)
            assert not found.findings, found.findings[0]
            for _ in bucket_rows(found.rows, bucket_count(len(tasks))):
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
        "every image decoded": lambda: check(Depth.FULL),
        "decoding alone": limit,
        "tf.data, parse, decode_jpeg": by_tensorflow,
        "--fast": lambda: check(Depth.FAST),
        "frames and checksums": lambda: check(Depth.FRAMES),
        "read, sha256 and crc32c alone": checksums,
        "validate()": lambda: whole(dataset, "full"),
        "validate(fast)": lambda: whole(dataset, "fast"),
        "validate() of one image": lambda: whole(one, "full"),
    }


def main() -> None:
    """Converts once, measures, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="a folder of photos, classes as folders")
    parser.add_argument(
        "--work", type=Path, required=True, help="a folder for the datasets; what is there is kept"
    )
    parser.add_argument("--size", default="224", help="of the stored pictures; empty to keep the originals")
    parser.add_argument("--shards", default=8, type=int, help="of the dataset")
    parser.add_argument("--rounds", default=5, type=int, help="how often each way is measured")
    parser.add_argument("--json", type=Path, help="where all figures go")
    options = parser.parse_args()
    dataset = options.work / f"{options.photos.name}-{options.size or 'kept'}"
    one = options.work / "one"
    for output, more in ((dataset, {"shards": options.shards}), (one, {"shards": 1, "limit": 1})):
        if not (output / "dataset.json").exists():
            shutil.rmtree(output, ignore_errors=True)
            convert(input=str(options.photos), output=str(output), resize=options.size, **more)
    ways = make_ways(dataset, one)
    size = sum(path.stat().st_size for path in dataset.glob("*.tfrecord"))
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(options.rounds + 1):  # the first one warms up
        for name in random.sample(list(ways), len(ways)):
            began, used = time.perf_counter(), time.process_time()
            ways[name]()
            if number:
                found[name].append((time.perf_counter() - began, time.process_time() - used))
    count = len(Records(dataset))
    print(f"{count:,} records, {size / 1e6:.1f} MB; medians of {options.rounds} rounds")
    figures = {}
    for name, rounds in found.items():
        seconds, cpu = (median(round_[i] for round_ in rounds) for i in range(2))
        figures[name] = {"seconds": seconds, "cpu_seconds": cpu}
        print(
            f"  {name:<30} {seconds:7.3f} s  {cpu:7.3f} s of processors  "
            f"{size / cpu / 1e9:6.2f} GB/s per processor  {cpu / count * 1e6:8.1f} us a record"
        )
    for name, other in (_DECODED, ("every image decoded", "tf.data, parse, decode_jpeg"), _FAST,
                        ("frames and checksums", _FAST[1])):  # fmt: skip
        ratios = [
            median(theirs[i] / mine[i] for mine, theirs in zip(found[name], found[other])) for i in range(2)
        ]
        figures[f"{name} / {other}"] = {"time": ratios[0], "cpu": ratios[1]}
        print(f"  {name}: {ratios[0]:.2f} of the speed of {other}, {ratios[1]:.2f} by processor time")
    start = figures["validate() of one image"]["seconds"]
    for name in ("validate()", "validate(fast)"):
        rest = figures[name]["seconds"] - start
        print(
            f"  {name} less start-up ({start:.2f} s): {rest:.3f} s, {count / max(rest, 1e-9):,.0f} records/s"
        )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
