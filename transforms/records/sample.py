"""Reads a few records of a dataset, and no more of its files than they need."""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import IO, NamedTuple

from shardwright.schemas.codes import FindingCode
from shardwright.schemas.dataset import Shard
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.ledger import written_entries
from shardwright.schemas.plan import ledger_file
from shardwright.transforms import storage
from shardwright.transforms.records.framing import (
    FOOTER_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    DamagedRange,
    Record,
    compression_of,
    decompress,
    masked_crc32c,
    read_records,
)

#: Bytes of a compressed shard that are unpacked at first, and how many times more the next time.
_FIRST_BYTES = 1 << 20
_GROWTH = 4


class RecordLocation(NamedTuple):
    """Where a record is: its file, the offset of its frame when unpacked, and its class."""

    path: str
    offset: int
    label: str


class _Head:
    """The first bytes of a file, as a file of its own."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size

    def read(self, size: int) -> bytes:
        """Returns up to `size` bytes, none at the end."""
        data = self._file.read(min(size, self._left))
        self._left -= len(data)
        return data


def read_lazily(path: str) -> Generator[Record | DamagedRange, None, None]:
    """Yields the records of a shard like `read_records`, and unpacks only what is asked for.

    Raises:
      EngineError: if the file is missing or cannot be read.
    """
    try:
        with storage.translated_errors("read", path), storage.open_local(path) as file:
            compression = _compression(file, path)
            if compression == "none":
                yield from read_records(file)
            else:
                yield from _read_packed(file, compression)
    except EngineError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise EngineError(f"{printable(path)} is missing; restore it or convert again.") from error
        raise


def _compression(file: IO[bytes], path: str) -> str:
    compression = compression_of(path, file.read(2))
    file.seek(0)
    return compression


def _read_packed(file: IO[bytes], compression: str) -> Iterator[Record | DamagedRange]:
    """Unpacks the beginning of a shard, and more of it from its beginning whenever that was too little."""
    size = os.fstat(file.fileno()).st_size
    limit = _FIRST_BYTES
    number = 0
    while True:
        file.seek(0)
        unpacked, error = decompress(_Head(file, limit), compression)  # type: ignore[arg-type]
        with closing(unpacked):
            end = os.fstat(unpacked.fileno()).st_size
            for item in read_records(unpacked):
                cut_off = isinstance(item, DamagedRange) and item.end == end
                if cut_off and limit < size:
                    break  # it only looks damaged, for the rest of it is not unpacked yet
                if cut_off:
                    error = None  # the damage says so
                if item.number >= number:
                    yield item
                    number += 1
        if limit >= size:
            break
        limit *= _GROWTH
    if error:
        yield DamagedRange(number, end, end, FindingCode.SHARD_TRUNCATED, error)


def records_at(path: str, offsets: Collection[int]) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, data) of the sound records at some offsets of a shard, in order.

    Raises:
      EngineError: if the file is missing or cannot be read.
    """
    left = set(offsets)
    if not storage.is_remote(path) and os.path.isfile(path):
        with storage.translated_errors("read", path), open(path, "rb") as file:
            if _compression(file, path) == "none":
                for offset in sorted(left):
                    data = _record_at(file, offset)
                    if data is not None:
                        yield offset, data
                return
    if not left:
        return
    for item in read_lazily(path):
        if isinstance(item, Record) and item.offset in left:
            yield item.offset, item.data
            left.remove(item.offset)
            if not left:
                return


def _record_at(file: IO[bytes], offset: int) -> bytes | None:
    file.seek(offset)
    header = file.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return None
    length, crc = struct.unpack("<QI", header)
    if masked_crc32c(header[:8]) != crc or length > os.fstat(file.fileno()).st_size - offset - FRAME_BYTES:
        return None
    data = file.read(length)
    footer = file.read(FOOTER_BYTES)
    sound = len(footer) == FOOTER_BYTES and masked_crc32c(data) == struct.unpack("<I", footer)[0]
    return data if sound else None


def ledger_places(
    directory: str, split: str, shards: Sequence[Shard], number: int
) -> list[RecordLocation] | None:
    """Returns where the records of a shard are, from its ledger; None if it has none that fits."""
    shard = shards[number]
    try:
        data = storage.read_bytes(storage.join(directory, ledger_file(split, number, len(shards))))
        path = storage.join(directory, shard.file)
        return [
            RecordLocation(path, entry.offset, entry.label)
            for entry in written_entries(data, shard.sha256)
            if entry.offset is not None
        ]
    except (OSError, ValueError):
        return None


def even_quota(counts: Mapping[str, int], total: int) -> dict[str, int]:
    """Shares `total` records out evenly among classes; what one lacks goes to the others.

    Args:
      counts: class -> records, in the order of the classes.
      total: records wanted.

    Returns:
      Class -> records to take; where there are more classes than records, evenly spread ones.
    """
    names = [name for name, count in counts.items() if count > 0]
    if len(names) > total:
        names = [names[i * len(names) // total] for i in range(total)]
    quota = dict.fromkeys(names, 0)
    left = min(total, sum(counts[name] for name in names))
    while left:
        for name in names:
            if left and quota[name] < counts[name]:
                quota[name] += 1
                left -= 1
    return quota


def pick_evenly(
    places: Iterable[RecordLocation], counts: Mapping[str, int], total: int, max_seen: int
) -> list[RecordLocation]:
    """Picks records evenly over the classes, the first ones of each.

    Args:
      places: where records are; taken only as far as needed.
      counts: class -> records, in the order of the classes; empty if that is not known.
      total: records wanted.
      max_seen: places after which the pick is made among those seen.
    """
    wanted = even_quota(counts, total)
    missing = sum(wanted.values())
    seen: dict[str, list[RecordLocation]] = {}
    for i, place in enumerate(places):
        of_class = seen.setdefault(place.label, [])
        if len(of_class) < total:
            of_class.append(place)
            if len(of_class) <= wanted.get(place.label, 0):
                missing -= 1
        if (wanted and not missing) or i + 1 >= max_seen:
            break
    if missing or not wanted:
        names = [
            *(name for name in counts if name in seen),
            *sorted(seen.keys() - counts.keys(), key=_natural),
        ]
        wanted = even_quota({name: len(seen[name]) for name in names}, total)
    return [place for name, count in wanted.items() for place in seen[name][:count]]


def _natural(name: str) -> tuple[int, str]:
    """Sorts numbers by value and before names."""
    return (len(name), name) if name.isdecimal() else (1 << 30, name)
