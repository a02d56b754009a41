"""Moves a written shard to its place, with its index and its ledger. Needs no Beam."""

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
    """Hashes a written shard, moves it to its place and writes its index and ledger.

    Args:
      directory: the dataset directory.
      place: which shard it is.
      file: its file's name.
      temporary: where it was written; nothing is left there.
      entries: its ledger.
      plan_digest: digest of all that decides its bytes.
      recipe: digest of the settings and versions that decide the bytes of its records.
      started: when it was begun, in seconds since the epoch.
      hold: the lease that has to be held for that; None where there is none.

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
                os.fsync(written.fileno())  # now, for others wait while the lease is locked
        with hold.held() if hold is not None else contextlib.nullcontext():
            storage.publish(temporary, storage.join(directory, file))
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
    """Writes a shard's ledger; returns the result with the digests of the shard's files."""
    data = dump_ledger(result.header, entries)
    write_held(directory, ledger_file(*place), data, hold)
    return dataclasses.replace(result, files=files_of(place, result.header.file, data, entries))


def index_of(file: str, entries: Iterable[Entry]) -> bytes:
    """Returns the index of a shard; empty for one without records, or that is compressed.

    Readers of indexes fail on an empty one, so that none is written then.

    Args:
      file: the shard's name.
      entries: of its ledger.
    """
    return b"" if is_compressed(file) else dump_index(entries)


def files_of(place: ShardPlace, file: str, ledger: bytes, entries: Iterable[Entry]) -> dict[str, str]:
    """Returns the sha256 of a shard's ledger and of its index, by their paths.

    Args:
      place: which shard it is.
      file: its name; empty for what has no shard.
      ledger: the file of the ledger.
      entries: what it says.
    """
    contents = {ledger_file(*place): ledger}
    if file and (index := index_of(file, entries)):
        contents[index_file(*place)] = index
    return {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()}


def result_of(place: ShardPlace, entries: Iterable[Entry]) -> ShardResult:
    """Returns what a shard's entries come to, without what only its file says."""
    return ShardResult(ShardTotals.of(entries).header(*place))


def discard(temporary: str) -> None:
    """Removes a temporary file, as far as that is possible."""
    with contextlib.suppress(OSError):
        os.unlink(temporary)
