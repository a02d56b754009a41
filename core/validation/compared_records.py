"""The values of records that are compared with those of other shards, and the records of one image."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from shardwright.schemas.image_ref import LABEL_SEPARATOR

#: Message for a record whose source has the same bytes as that of another record.
SAME_SOURCE = "same source bytes as {}"


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


class Placed(Protocol):
    """A record with the values that are compared."""

    @property
    def file(self) -> str:
        """Name of the shard."""

    @property
    def number(self) -> int:
        """Number of the record in its shard."""

    @property
    def split(self) -> str:
        """Split of the record."""

    @property
    def classes(self) -> frozenset[str]:
        """Classes of the record; empty if it has none."""


R = TypeVar("R", bound=Placed)
K = TypeVar("K", bound=Hashable)


def in_conflict(classes: frozenset[str], others: frozenset[str]) -> bool:
    """Returns whether two images both have classes, and these differ."""
    return bool(classes) and bool(others) and classes != others


class EqualPictures(Generic[R]):
    """Records of one image. It holds one record for each split and for each set of classes.

    The later record of a pair, by place, is reported. So an image that occurs n times is reported at most
    n - 1 times.
    """

    def __init__(self) -> None:
        self._splits: dict[str, R] = {}
        self._classes: dict[frozenset[str], R] = {}

    def add(self, row: R) -> None:
        """Adds a record."""
        _keep_first(self._splits, row.split, row)
        if row.classes:
            _keep_first(self._classes, row.classes, row)

    def first(self) -> R:
        """Returns the first record by place."""
        return min(self._splits.values(), key=_place)

    def settle(self) -> None:
        """Drops the records that are not needed for comparison; afterwards nothing can be added."""
        # Any record that differs from some record also differs from one of the first two different ones.
        self._splits = {row.split: row for row in _first_two(self._splits.values())}
        self._classes = {row.classes: row for row in _first_two(self._classes.values())}

    def in_other_split(self, row: R) -> R | None:
        """Returns the first record before this one that is in another split, or None."""
        return _before(row, (other for other in self._splits.values() if other.split != row.split))

    def in_other_class(self, row: R) -> R | None:
        """Returns the first earlier record with other classes, or None; a record without classes has none."""
        return _before(
            row, (other for other in self._classes.values() if in_conflict(row.classes, other.classes))
        )


def describe_pair(likeness: str, row: Placed, other: Placed) -> str:
    """Returns one sentence that says what two records share, and how their splits and classes differ.

    Args:
      likeness: What they share, with {} for the other record, such as `same pixels as {}`.
      row: Record that is reported.
      other: The other record.
    """
    differences = []
    if row.split != other.split:
        differences.append(f"in split {other.split!r}")
    if in_conflict(row.classes, other.classes):
        differences.append(f"of class {_names(other.classes)}, not {_names(row.classes)}")
    return ", ".join([likeness.format(f"record {other.number} of {other.file}"), *differences])


def _names(classes: frozenset[str]) -> str:
    return " and ".join(repr(name) for name in sorted(classes))


def _place(row: Placed) -> tuple[str, int]:
    return row.file, row.number


def _keep_first(firsts: dict[K, R], key: K, row: R) -> None:
    first = firsts.get(key)
    if first is None or _place(row) < _place(first):
        firsts[key] = row


def _first_two(rows: Iterable[R]) -> list[R]:
    return sorted(rows, key=_place)[:2]


def _before(row: R, others: Iterable[R]) -> R | None:
    return min((other for other in others if _place(other) < _place(row)), key=_place, default=None)
