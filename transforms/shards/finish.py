"""Moves a finished shard to its final path, and writes its index and its ledger. Does not need Beam."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shardwright.schemas.ledger import Entry, ShardResult, dump_index, dump_ledger
from shardwright.schemas.plan import index_file, is_compressed, ledger_file
from shardwright.schemas.shard_totals import ShardTotals
from shardwright.transforms import storage
from shardwright.transforms.lease import HeldLease, write_held


class ShardPlace(NamedTuple):
    """A shard's split, its number from 0, and the number of shards in the split."""

    split: str
    shard: int
    num_shards: int


def finish_shard(
    directory: str,
    place: ShardPlace,
    file: str,
    temporary: str,
    entries: Sequence[Entry],
    plan_digest: str,
    recipe: str,
    started: float,
    hold: HeldLease | None = None,
) -> ShardResult:
    """Hashes a finished shard, moves it to its final path and writes its index and ledger.

    Args:
      directory: dataset directory.
      place: split and number of the shard.
      file: name of the shard file.
      temporary: path of the temporary file, which is moved.
      entries: entries of its ledger.
      plan_digest: digest of everything that determines its bytes.
      recipe: digest of the settings and versions that determine the bytes of its records.
      started: start time in seconds since the epoch.
      hold: lease that must be held; None if there is none.

    Raises:
      EngineError: if the lease was lost.
      OSError: if the storage failed.
    """
    try:
        if hold is not None:
            hold.check()
        with open(temporary, "rb") as written:
            sha256, crc32c = storage.checksums_of(written)
            size = os.fstat(written.fileno()).st_size
            if not storage.is_remote(directory):
                os.fsync(written.fileno())  # computed first, because others wait while the lease is locked
        with hold.held() if hold is not None else contextlib.nullcontext():
            storage.move_into_place(temporary, storage.join(directory, file))
    except BaseException:
        discard(temporary)
        raise
    result = result_of(place, entries)
    header = dataclasses.replace(
        result.header,
        file=file,
        plan_digest=plan_digest,
        bytes=size,
        sha256=sha256,
        recipe=recipe,
        crc32c=crc32c,
    )
    result = dataclasses.replace(result, header=header, started=started, finished=time.time())
    index = index_of(file, entries)
    if index:
        write_held(directory, index_file(*place), index, hold)
    return write_ledger(directory, place, result, entries, hold)


def write_ledger(
    directory: str,
    place: ShardPlace,
    result: ShardResult,
    entries: Sequence[Entry],
    hold: HeldLease | None = None,
) -> ShardResult:
    """Writes the ledger of a shard; returns the result with the digests of the shard's files."""
    data = dump_ledger(result.header, entries)
    write_held(directory, ledger_file(*place), data, hold)
    return dataclasses.replace(result, files=files_of(place, result.header.file, data, entries))


def index_of(file: str, entries: Iterable[Entry]) -> bytes:
    """Returns the index of a shard; empty if the shard has no records or is compressed.

    Readers fail on an empty index, so it is not written.

    Args:
      file: name of the shard file.
      entries: entries of its ledger.
    """
    return b"" if is_compressed(file) else dump_index(entries)


def files_of(place: ShardPlace, file: str, ledger: bytes, entries: Iterable[Entry]) -> dict[str, str]:
    """Returns the sha256 of a shard's ledger and of its index, by path.

    Args:
      place: split and number of the shard.
      file: name of the shard file; empty for entries without a shard.
      ledger: content of the ledger file.
      entries: entries of the ledger.
    """
    contents = {ledger_file(*place): ledger}
    if file and (index := index_of(file, entries)):
        contents[index_file(*place)] = index
    return {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()}


def result_of(place: ShardPlace, entries: Iterable[Entry]) -> ShardResult:
    """Returns a result with the counts of a shard's entries, without the values that come from its file."""
    return ShardResult(ShardTotals.of(entries).header(*place))


def discard(temporary: str) -> None:
    """Removes a temporary file if possible."""
    with contextlib.suppress(OSError):
        os.unlink(temporary)
