"""What equal pictures prove: one picture is in two splits, or in two classes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, Protocol, TypeVar

#: Says of a record that its source has the same bytes as the one of another record.
SAME_SOURCE = "same source bytes as {}"


class Placed(Protocol):
    """A record with what is compared of it."""

    @property
    def file(self) -> str:
        """The shard."""

    @property
    def number(self) -> int:
        """The record's number in its shard."""

    @property
    def split(self) -> str:
        """The split."""

    @property
    def classes(self) -> frozenset[str]:
        """The classes; empty without any."""


R = TypeVar("R", bound=Placed)
K = TypeVar("K", bound=Hashable)


def in_conflict(classes: frozenset[str], others: frozenset[str]) -> bool:
    """Whether two pictures both have classes, and not the same."""
    return bool(classes) and bool(others) and classes != others


class EqualPictures(Generic[R]):
    """Records of one picture. It holds one record for each split and for each set of classes.

    The record of a pair that comes later by place is the one that is reported. So a picture that is there n
    times is reported n - 1 times at most.
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
        """Forgets what no record is compared with; nothing can be added afterwards."""
        # Whatever a record is, one of the first two that differ from each other differs from it.
        self._splits = {row.split: row for row in _first_two(self._splits.values())}
        self._classes = {row.classes: row for row in _first_two(self._classes.values())}

    def in_other_split(self, row: R) -> R | None:
        """Returns the first record before this one that is in another split."""
        return _before(row, (other for other in self._splits.values() if other.split != row.split))

    def in_other_class(self, row: R) -> R | None:
        """Returns the first record before this one that has other classes; one without any has none."""
        return _before(
            row, (other for other in self._classes.values() if in_conflict(row.classes, other.classes))
        )


def describe_pair(likeness: str, row: Placed, other: Placed) -> str:
    """Returns in one sentence how a record is like another, and how their splits and classes differ.

    Args:
      likeness: what they share, with {} for the other record, such as `same pixels as {}`.
      row: the record that is reported.
      other: the other one.
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
    known = firsts.get(key)
    if known is None or _place(row) < _place(known):
        firsts[key] = row


def _first_two(rows: Iterable[R]) -> list[R]:
    return sorted(rows, key=_place)[:2]


def _before(row: R, others: Iterable[R]) -> R | None:
    return min((other for other in others if _place(other) < _place(row)), key=_place, default=None)
