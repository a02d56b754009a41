"""Moves a finished shard to its final path, writes its index and its ledger, and adds up results."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from shardwright.core import storage
from shardwright.core.lease import HeldLease, while_held, write_held
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.ledger import LedgerLines, ShardHeader, ShardResult, ShardTotals, sums_of_headers
from shardwright.schemas.plan import ShardPlace, index_file, is_compressed, ledger_file


def finish_shard(
    directory: str,
    header: ShardHeader,
    temporary: str,
    lines: LedgerLines,
    started: float,
    hold: HeldLease | None = None,
) -> ShardResult:
    """Hashes a finished shard, moves it to its final path and writes its index and ledger.

    Args:
      directory: Dataset directory.
      header: Header of its ledger, without the size and the checksums of the shard file.
      temporary: Path of the temporary file, which is moved.
      lines: Lines of its ledger.
      started: Start time in seconds since the epoch.
      hold: Lease that must be held; None if there is none.

    Raises:
      EngineError: If the lease was lost.
      OSError: If the storage failed.
    """
    with storage.removed_on_failure(temporary):
        if hold is not None:
            hold.check()
        with open(temporary, "rb") as shard:
            sha256, crc32c = storage.checksums_of(shard)
            size = os.fstat(shard.fileno()).st_size
            if not storage.is_remote(directory):
                os.fsync(shard.fileno())  # computed first, because others wait while the lease is locked
        with while_held(hold):
            storage.move_into_place(temporary, storage.join(directory, header.file))
    header = replace(header, bytes=size, sha256=sha256, crc32c=crc32c)
    result = ShardResult(header, started=started, finished=time.time())
    return write_ledger(directory, result, lines, hold)


def write_ledger(
    directory: str, result: ShardResult, lines: LedgerLines, hold: HeldLease | None = None
) -> ShardResult:
    """Writes the index and then the ledger of a shard; returns the result with the digests of both."""
    data, file, place = lines.dump(result.header), result.header.file, result.header.place
    index = b"" if not file or is_compressed(file) else lines.index
    if index:
        write_held(directory, index_file(*place), index, hold)
    write_held(directory, ledger_file(*place), data, hold)
    return replace(result, files=files_of(place, data, index))


def files_of(place: ShardPlace, ledger: bytes, index: bytes) -> dict[str, str]:
    """Returns the sha256 of a shard's ledger and of its index, by path.

    Args:
      place: Split and number of the shard.
      ledger: Content of the ledger file.
      index: Content of the index; empty if there is none.
    """
    contents = {ledger_file(*place): ledger, **({index_file(*place): index} if index else {})}
    return {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()}


def condense(results: Iterable[ShardResult]) -> list[ShardResult]:
    """Returns results with the same totals, of which the first one of each split has the sums of the split.

    With 1,000 classes a result has 21 kB, nearly all of it counts for each class, of which only the sums
    are needed. Without them a result has 1 kB.
    """
    splits: dict[str, ShardTotals] = {}
    bare: list[ShardResult] = []
    for result in results:
        header = result.header
        splits.setdefault(header.split, ShardTotals()).merge(header)
        bare.append(replace(result, header=replace(header, **_summed(ShardTotals()))))
    for place, result in enumerate(bare):
        if (totals := splits.pop(result.header.split, None)) is not None:
            bare[place] = replace(result, header=replace(result.header, **_summed(totals)))
    return bare


def _summed(totals: ShardTotals) -> dict[str, Any]:
    """Returns the fields of a header of which only the sums over a split are needed."""
    return {name: getattr(totals, name) for name in ("class_counts", "formats", "sources")}


def with_shards(dataset: Dataset, results: Iterable[ShardResult]) -> Dataset:
    """Returns a dataset that consists of these shards."""
    results = list(results)
    headers = sorted((result.header for result in results), key=lambda header: header.shard)
    splits = {split: [item for item in headers if item.split == split] for split in dataset.plan.shards}
    return replace(
        dataset,
        splits={
            split: tuple(header.as_shard() for header in split_headers)
            for split, split_headers in splits.items()
        },
        files={path: sha256 for result in results for path, sha256 in result.files.items()},
        **sums_of_headers(headers, splits),
    )
