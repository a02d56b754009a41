"""The values of a shard's records that are compared with those of other shards, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from shardwright.schemas.image_ref import LABEL_SEPARATOR


class ComparedRecord(NamedTuple):
    """Values of a record that are compared across shards.

    Attributes:
      key: Key of the image. None if the record does not say.
      source: sha256 of the source's bytes, or of the stored image if the source's is unknown.
      split: Split of the record. Empty if unknown.
      file: Name of the shard.
      number: Number of the record in its shard, from 0.
      offset: Byte offset of the record in the uncompressed shard.
      label: Class names joined as in a ledger. Empty without a class.
    """

    key: str | None
    source: str | None
    split: str
    file: str
    number: int
    offset: int
    label: str = ""

    @property
    def classes(self) -> frozenset[str]:
        """Classes of the image."""
        return frozenset(self.label.split(LABEL_SEPARATOR)) if self.label else frozenset()


class ComparedRecords:
    """A list of `ComparedRecord`, without an object for each.

    Args:
      records: The first records.

    Attributes:
      columns: A list for each field of `ComparedRecord`.
    """

    def __init__(self, records: Iterable[ComparedRecord] = ()) -> None:
        self.columns: tuple[list[Any], ...] = tuple([] for _ in ComparedRecord._fields)
        for record in records:
            self.append(record)

    def append(self, record: ComparedRecord) -> None:
        """Adds a record."""
        for column, value in zip(self.columns, record):
            column.append(value)

    def __iter__(self) -> Iterator[ComparedRecord]:
        return map(ComparedRecord, *self.columns)

    def __len__(self) -> int:
        return len(self.columns[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComparedRecords) and self.columns == other.columns

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ComparedRecords({list(self)!r})"
