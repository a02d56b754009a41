"""Plants defects in finished datasets, and updates everything else that depends on the shard."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from helpers import resealing
from helpers.resealing import Edit, frame, read_ledger, read_shard, settle
from shardwright.schemas.example import encode_example, parse_example

SHARD = "train-00001-of-00003.tfrecord"


def rewrite(dataset: Path, edit: Edit, number: int = 2, shard: str = SHARD, **ledger: str) -> str:
    """Edits one record, its line in the ledger and all that depends on them; returns its former key."""
    key = edit_record(dataset, edit, number, shard, **ledger)
    settle(dataset)
    return key


def edit_record(dataset: Path, edit: Edit, number: int, shard: str, **ledger: str) -> str:
    """The same, but other files stay as they are until somebody calls `settle`."""
    records, lines = read_shard(dataset / shard), written_lines(dataset, shard)
    features = parse_example(records[number])
    edit(features)
    records[number] = encode_example(features)
    key: str = lines[number]["key"]
    lines[number] |= ledger
    write_shard(dataset, shard, records, lines)
    return key


def write_shard(dataset: Path, shard: str, records: Sequence[bytes], lines: Sequence[dict[str, Any]]) -> None:
    """Writes a shard's records, its index and its ledger."""
    frames = [frame(record) for record in records]
    (dataset / shard).write_bytes(b"".join(frames))
    sizes = [len(each) for each in frames]
    places = list(zip(accumulate(sizes, initial=0), sizes))
    index = "".join(f"{begin} {size}\n" for begin, size in places)
    (dataset / "_index" / shard).with_suffix(".idx").write_text(index)
    placed = [{**line, "offset": begin, "length": size} for line, (begin, size) in zip(lines, places)]
    write_ledger(dataset, shard, placed)


def written_lines(dataset: Path, shard: str) -> list[dict[str, Any]]:
    return [line for line in read_ledger(dataset, _stem(shard))[1:] if line["outcome"] == "written"]


def write_ledger(dataset: Path, shard: str, written: Sequence[dict[str, Any]]) -> None:
    """Writes a shard's ledger: its header with the shard's checksum, then the lines about records."""
    header, *lines = read_ledger(dataset, _stem(shard))
    header["sha256"] = hashlib.sha256((dataset / shard).read_bytes()).hexdigest()
    others = [line for line in lines if line["outcome"] != "written"]
    resealing.write_ledger(dataset, _stem(shard), [header, *written, *others])


def _stem(shard: str) -> str:
    return shard.removesuffix(".tfrecord")
