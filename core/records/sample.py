"""Reads a few records of a dataset, and only the needed parts of its files."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

from shardwright.core import storage
from shardwright.core.records.compression import HEAD_BYTES, compression_of, uncompressed
from shardwright.core.records.framing import (
    FRAME_BYTES,
    HEADER_BYTES,
    DamagedRange,
    FrameDamage,
    Record,
    data_length,
    data_of,
    read_records,
)
from shardwright.core.storage.ranges import open_ranges
from shardwright.schemas.codes import Outcome
from shardwright.schemas.dataset import Shard
from shardwright.schemas.errors import EngineError, ShardwrightError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.ledger import Entry, load_ledger
from shardwright.schemas.plan import ledger_file

#: Records above this size are not read by their offset.
MAX_RECORD_BYTES = 64_000_000


class RecordLocation(NamedTuple):
    """The location of a record: its file, the offset of its frame in the uncompressed file, and its class."""

    path: str
    offset: int
    label: str


def read_lazily(path: str) -> Generator[Record | DamagedRange, None, None]:
    """Yields the records of a shard like `read_records`, and reads only what the caller consumes.

    A compressed shard is unpacked into a temporary file first.

    Raises:
      EngineError: If the file is missing or cannot be read.
    """
    with (
        translated_shard_errors(path),
        storage.open_local(path) as file,
        uncompressed(file, path) as (plain, _, fault),
    ):
        yield from read_records(plain, fault)


@contextmanager
def translated_shard_errors(path: str) -> Iterator[None]:
    """Turns any OSError of the block into an `EngineError`. If the shard is missing, it says what to do."""
    try:
        yield
    except ShardwrightError:
        raise
    except FileNotFoundError as error:
        raise EngineError(f"{printable(path)} is missing; restore it or convert again.") from error
    except OSError as error:
        raise storage.fault(error, "read", path) from error


def records_at(path: str, offsets: Collection[int]) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, data) of the sound records at the given offsets of a shard, in order.

    Only these records of an uncompressed shard are read, and only those of at most `MAX_RECORD_BYTES`.

    Raises:
      EngineError: If the file is missing or cannot be read.
    """
    left = set(offsets)
    if not left:
        return
    with translated_shard_errors(path), open_ranges(path) as reader:
        if compression_of(path, reader.read_at(0, HEAD_BYTES)) == "none":
            for offset in sorted(left):
                with suppress(FrameDamage):
                    length = data_length(reader.read_at(offset, HEADER_BYTES), reader.size - offset)
                    if length <= MAX_RECORD_BYTES:
                        yield offset, data_of(reader.read_at(offset, length + FRAME_BYTES))
            return
    for item in read_lazily(path):
        if isinstance(item, Record) and item.offset in left:
            yield item.offset, item.data
            left.remove(item.offset)
            if not left:
                return


def ledger_entries(directory: str, place: tuple[str, int, int], shard: Shard) -> Iterator[Entry]:
    """Yields the entries of a shard's records from its ledger; none if it is damaged or of another build.

    Lines are parsed as they are needed, because the first few hundred are usually enough.

    Args:
      directory: The dataset directory.
      place: Split and number of the shard, and the number of shards in the split.
      shard: The shard as `dataset.json` describes it.

    Raises:
      EngineError: If the ledger is missing or cannot be read.
    """
    path = storage.join(directory, ledger_file(*place))
    with storage.translated_errors("read", path):
        data = storage.read_bytes(path)
    try:
        header, entries = load_ledger(data)
        for entry in entries if header.sha256 == shard.sha256 else ():
            is_written = entry.outcome == Outcome.WRITTEN
            if is_written and isinstance(entry.offset, int) and isinstance(entry.length, int):
                yield entry
    except (ValueError, TypeError, RecursionError):
        return  # verification reports it


def even_quota(counts: Mapping[str, int], total: int) -> dict[str, int]:
    """Divides `total` records evenly among classes; if a class has too few, the others get more.

    Args:
      counts: Class -> number of records, in the order of the classes.
      total: Number of wanted records.

    Returns:
      Class -> number of records to take. With more classes than records, evenly spread classes get one.
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
    """Picks the first records of each class, evenly over the classes.

    Args:
      places: Locations of records; consumed only until enough are found.
      counts: Class -> number of records, in the order of the classes; empty if unknown.
      total: Number of wanted records.
      max_seen: Number of locations to consume at most.
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
    """Returns a sort key that orders numbers by value and before names."""
    return (len(name), name) if name.isdecimal() else (1 << 30, name)
