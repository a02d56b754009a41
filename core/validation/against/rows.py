"""Rows that describe the sound records of a shard, without their images."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from shardwright.core import storage
from shardwright.core.records.compression import uncompressed
from shardwright.core.records.encodings import WrongEncoding, plain_feature
from shardwright.core.records.framing import FRAME_BYTES, HEADER_BYTES, Record
from shardwright.core.records.recovery import read_records
from shardwright.schemas.dataset import Shard
from shardwright.schemas.example import ParsedExample
from shardwright.schemas.layouts import FeatureRole, FeatureSpec
from shardwright.schemas.ledger import Entry, ledger_of
from shardwright.schemas.plan import ledger_file


class SoundRecord(NamedTuple):
    """A sound record without its data.

    Attributes:
      number: Number of the record in its shard, from 0.
      offset: Offset of its frame in the uncompressed shard.
      length: Length of its frame.
      digest: sha256 of its data.
      key: Key in the record. None if the record does not say.
    """

    number: int
    offset: int
    length: int
    digest: bytes
    key: str | None = None


@contextlib.contextmanager
def open_shard(path: str) -> Iterator[IO[bytes]]:
    """Opens a shard's uncompressed bytes for random access.

    Raises:
      FileNotFoundError: If there is no such shard.
    """
    with storage.open_local(path) as file, uncompressed(file, path) as (plain, _, _):
        yield plain  # other checks report damage


def read_rows(file: IO[bytes], features: Sequence[FeatureSpec]) -> Iterator[SoundRecord]:
    """Yields a row for every sound record of an open shard."""
    spec = next((spec for spec in features if spec.fill is FeatureRole.KEY), None)
    for item in read_records(file):
        if isinstance(item, Record):
            digest = hashlib.sha256(item.data).digest()
            yield SoundRecord(
                item.number, item.offset, len(item.data) + FRAME_BYTES, digest, _key(item.data, spec)
            )


def _key(data: bytes, spec: FeatureSpec | None) -> str | None:
    if spec is None:
        return None
    try:
        feature = ParsedExample(data).feature(spec.name)
        if feature.type is not spec.type:
            return None
        values = plain_feature(spec, feature).values
        return str(values[0], "utf-8", "replace") if len(values) == 1 else None
    except (ValueError, TypeError, WrongEncoding):
        return None


def record_data(file: IO[bytes], row: SoundRecord) -> bytes:
    """Returns the data of a record of an open shard."""
    file.seek(row.offset + HEADER_BYTES)
    return file.read(row.length - FRAME_BYTES)


def read_entries(directory: str, place: tuple[str, int, int], shard: Shard) -> dict[str, Entry]:
    """Returns the entries of a shard's ledger by key; none if it is missing, damaged or of another build.

    Args:
      directory: The dataset directory.
      place: Split and number of the shard, and the number of shards in the split.
      shard: The shard's entry in `dataset.json`.
    """
    data = storage.read_if_exists(storage.join(directory, ledger_file(*place)))
    try:
        return {entry.key: entry for entry in ledger_of(data or b"", shard.sha256)[1]}
    except ValueError:
        return {}


def rows_by_key(
    rows: Sequence[SoundRecord], entries: Mapping[str, Entry], has_keys: bool, bytes_tell: bool
) -> dict[str, list[SoundRecord]] | None:
    """Returns the rows by the key of their image; None if the key of a row is not known.

    Records that should state their key but do not are under an empty key.

    Args:
      rows: Rows of a shard.
      entries: Entries of its ledger. Empty if there is no ledger.
      has_keys: Whether records state their keys.
      bytes_tell: Whether the bytes of a record are enough to find its image.
    """
    by_offset = {entry.offset: entry for entry in entries.values() if entry.offset is not None}
    if not has_keys and bytes_tell and len(rows) != len(by_offset):
        return None
    found: dict[str, list[SoundRecord]] = {}
    for row in rows:
        key = row.key
        entry = by_offset.get(row.offset)
        if entry is not None and entry.file_name and entry.file_name == key and entry.length == row.length:
            key = entry.key
        elif key is None:
            if entry is not None and entry.length == row.length:
                key = entry.key
            elif has_keys:
                key = ""
            else:
                return None
        found.setdefault(key, []).append(row)
    return found
