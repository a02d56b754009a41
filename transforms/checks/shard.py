"""Checks one shard: the file as a whole, its frames, and every record in it. Needs no Beam."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from enum import IntEnum
from typing import IO, NamedTuple

from shardwright.schemas.codes import FindingCode
from shardwright.schemas.dataset import Shard
from shardwright.schemas.findings import Finding
from shardwright.transforms import storage
from shardwright.transforms.checks.contract import Contract
from shardwright.transforms.checks.record import CheckedRecord, check_record
from shardwright.transforms.records.framing import (
    Damage,
    Record,
    compression_of,
    decompress,
    read_records,
)
from shardwright.transforms.shards.pool import map_ordered
from shardwright.transforms.workers import worker_threads

#: Notes a finding: code, message, record number, offset, key.
Find = Callable[..., None]

_WAITING_PER_THREAD = 32


class Depth(IntEnum):
    """How deep a check goes; each includes those before."""

    FRAMES = 0  # framing, CRCs, counts, checksums
    EXAMPLES = 1  # every Example and its features
    PIXELS = 2  # every image decoded and compared with its record


class ShardTask(NamedTuple):
    """A shard to check.

    Attributes:
      path: where it is.
      file: its name, for findings.
      split: its split, empty if unknown.
      expected: what `dataset.json` says of it; None for foreign files.
    """

    path: str
    file: str
    split: str
    expected: Shard | None


class Row(NamedTuple):
    """A record's identity, for comparing records across shards."""

    key: str | None
    source: str | None
    split: str
    file: str
    number: int
    offset: int


@dataclass
class ShardCheck:
    """What the check of one shard showed."""

    file: str
    split: str
    records: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


def check_shard(
    task: ShardTask, contract: Contract, depth: Depth, executor: ThreadPoolExecutor | None = None
) -> ShardCheck:
    """Checks a shard.

    Args:
      task: the shard.
      contract: what its records promise.
      depth: how deep to look.
      executor: decodes images in parallel; without one they are decoded in turn.
    """
    check = ShardCheck(task.file, task.split)

    def find(code: FindingCode, message: str, number: int | None = None,
             offset: int | None = None, key: str | None = None) -> None:  # fmt: skip
        check.findings.append(Finding(code, message, task.file, number, offset, key))

    try:
        with storage.open_local(task.path) as file:
            check.bytes = os.fstat(file.fileno()).st_size
            if task.expected:
                _check_file(file, task.expected, check.bytes, find)
            for record, result in _check_records(file, task, contract, depth, executor, find):
                check.records += 1
                if result is None:
                    continue
                for code, message in result.problems:
                    find(code, message, record.number, record.offset, result.key)
                check.rows.append(
                    Row(
                        result.key,
                        result.source,
                        task.split,
                        task.file,
                        record.number,
                        record.offset,
                    )
                )
    except FileNotFoundError:
        find(FindingCode.SHARD_MISSING, "the file is missing")
        return check
    except OSError as error:
        raise storage.fault(error, "read", task.path) from error
    if task.expected and check.records != task.expected.records:
        find(
            FindingCode.COUNT_MISMATCH,
            f"it holds {check.records} sound records, dataset.json says {task.expected.records}",
        )
    return check


def _check_file(file: IO[bytes], expected: Shard, size: int, find: Find) -> None:
    if size < expected.bytes:
        find(
            FindingCode.SHARD_TRUNCATED,
            f"it has {size} bytes, dataset.json says {expected.bytes}",
        )
    sha256 = storage.sha256_of(file)
    file.seek(0)
    if sha256 != expected.sha256:
        find(
            FindingCode.SHARD_CHECKSUM,
            f"its sha256 begins {sha256[:12]}, dataset.json says {expected.sha256[:12]}",
        )


def _check_records(
    file: IO[bytes],
    task: ShardTask,
    contract: Contract,
    depth: Depth,
    executor: ThreadPoolExecutor | None,
    find: Find,
) -> Iterator[tuple[Record, CheckedRecord | None]]:
    """Yields every sound record with what its check showed; damages become findings at once."""
    compression = compression_of(task.file, file.read(2))
    file.seek(0)
    error = None
    if compression != "none":
        file, error = decompress(file, compression)
    with closing(file):

        def sound() -> Iterator[Record]:
            for item in read_records(file):
                if isinstance(item, Damage):
                    find(item.code, item.message, item.number, item.offset)
                else:
                    yield item

        if depth is Depth.FRAMES:
            for record in sound():
                yield record, None
        elif executor is None or depth is Depth.EXAMPLES:
            for record in sound():
                yield record, check_record(record.data, contract, depth is Depth.PIXELS)
        else:
            yield from map_ordered(
                lambda record: (record, check_record(record.data, contract, True)),
                sound(),
                executor,
                weigh=lambda record: len(record.data),
                max_items=_WAITING_PER_THREAD * worker_threads(),
            )
    if error:
        find(FindingCode.SHARD_TRUNCATED, error)
