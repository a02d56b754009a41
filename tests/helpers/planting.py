"""Plants defects in finished datasets, and updates everything else that depends on the shard."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from helpers.fewer_imports import late
from helpers.resealing import read_shard, settle

tf = late("tensorflow")

#: Changes a `tf.train.Example`.
Edit = Callable[[Any], None]
SHARD = "train-00001-of-00003.tfrecord"


def rewrite(dataset: Path, edit: Edit, number: int = 2, shard: str = SHARD, **ledger: str) -> str:
    """Edits one record with TensorFlow, and its line in the ledger; returns its former key."""
    records = read_shard(dataset / shard)
    lines = written_lines(dataset, shard)
    example = tf.train.Example.FromString(records[number])
    edit(example)
    records[number] = example.SerializeToString(deterministic=True)
    key: str = lines[number]["key"]
    lines[number] |= ledger
    write_shard(dataset, shard, records, lines)
    return key


def write_shard(
    dataset: Path, shard: str, records: list[bytes], lines: Sequence[dict[str, Any]] | None = None
) -> None:
    """Writes a shard's records, and its index, ledger and entry in `dataset.json` accordingly.

    Without `lines`, the ledger is computed from the records.
    """
    path = dataset / shard
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    sizes = [len(record) + 16 for record in records]
    places = list(zip(accumulate(sizes, initial=0), sizes))
    index = "".join(f"{begin} {size}\n" for begin, size in places)
    (dataset / "_index" / shard).with_suffix(".idx").write_text(index)
    if lines is None:
        lines = [line_of(record) for record in records]
    placed = [{**line, "offset": begin, "length": size} for line, (begin, size) in zip(lines, places)]
    write_ledger(dataset, shard, placed)
    settle(dataset)


def line_of(record: bytes) -> dict[str, Any]:
    example = tf.train.Example.FromString(record)
    names = {"key": "image/filename", "sha256": "image/key/sha256", "label": "image/class/text"}
    values = {name: b"".join(texts(example, feature)).decode() for name, feature in names.items()}
    return {"outcome": "written", **values}


def ledger_path(dataset: Path, shard: str) -> Path:
    return dataset / "_shards" / f"{shard.removesuffix('.tfrecord')}.jsonl.gz"


def ledger_lines(dataset: Path, shard: str) -> list[dict[str, Any]]:
    packed = ledger_path(dataset, shard).read_bytes()
    return [json.loads(line) for line in gzip.decompress(packed).decode().splitlines()]


def written_lines(dataset: Path, shard: str) -> list[dict[str, Any]]:
    return [line for line in ledger_lines(dataset, shard)[1:] if line["outcome"] == "written"]


def write_ledger(dataset: Path, shard: str, written: Sequence[dict[str, Any]]) -> None:
    """Writes a shard's ledger: its header with the shard's checksum, then the lines about records."""
    header, *lines = ledger_lines(dataset, shard)
    header["sha256"] = hashlib.sha256((dataset / shard).read_bytes()).hexdigest()
    others = [line for line in lines if line["outcome"] != "written"]
    text = "\n".join(map(json.dumps, [header, *written, *others])) + "\n"
    ledger_path(dataset, shard).write_bytes(gzip.compress(text.encode()))


def ints(example: tf.train.Example, name: str) -> list[int]:
    return example.features.feature[name].int64_list.value


def texts(example: tf.train.Example, name: str) -> list[bytes]:
    return example.features.feature[name].bytes_list.value


def floats(example: tf.train.Example, name: str) -> list[float]:
    return example.features.feature[name].float_list.value


def set_int(name: str, *values: int) -> Edit:
    def edit(example: tf.train.Example) -> None:
        ints(example, name)[:] = values

    return edit


def set_text(name: str, *values: bytes) -> Edit:
    def edit(example: tf.train.Example) -> None:
        texts(example, name)[:] = values

    return edit


def set_float(name: str, *values: float) -> Edit:
    def edit(example: tf.train.Example) -> None:
        floats(example, name)[:] = values

    return edit


def remove(name: str) -> Edit:
    def edit(example: tf.train.Example) -> None:
        del example.features.feature[name]

    return edit


def retype(example: tf.train.Example) -> None:
    del example.features.feature["image/width"]
    example.features.feature["image/width"].float_list.value.append(64.0)
