"""Compares records with each other: duplicate keys, and equal source bytes in two splits or two classes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from shardwright.core.hash_buckets import MAX_BUCKETS, bucket_of, packed_by, unpack_rows
from shardwright.schemas.codes import FindingCode, Outcome
from shardwright.schemas.findings import Finding, Where
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.ledger import load_ledger

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


#: What is compared in a bucket: keys or sources.
KEY, SOURCE = "key", "source"
#: Number of rows that meet in a bucket on average. They take 15 MB.
_ROWS_PER_BUCKET = 50_000


def buckets_of_rows(records: int) -> int:
    """Returns the number of buckets of each kind for the rows of all records of a dataset.

    Each shard packs its rows for each bucket, so many buckets cost small datasets more than the comparison.
    """
    return min(max(-(-records // _ROWS_PER_BUCKET), 1), MAX_BUCKETS)


def bucket_rows(
    rows: Iterable[ComparedRecord], buckets: int, keys: bool = True
) -> Iterator[tuple[tuple[str, int], bytes]]:
    """Returns a shard's rows packed by bucket: once by key, once by source. Equal values meet in one bucket.

    Args:
      rows: Rows of the shard.
      buckets: Number of buckets of each kind (`buckets_of_rows`). All shards need the same number.
      keys: Whether to look for duplicate keys.

    Returns:
      Pairs ((what, bucket), packed rows), where `what` is `KEY` or `SOURCE`.
    """

    def bucketed() -> Iterator[tuple[tuple[str, int], ComparedRecord]]:
        for row in rows:
            key, source, split, file, number, offset, label = row
            if keys and key is not None:
                yield (KEY, bucket_of(key, buckets)), ComparedRecord(key, None, "", file, number, offset)
            if source is not None and (split or label):
                yield (SOURCE, bucket_of(source, buckets)), row

    return packed_by(bucketed())


def rows_of_ledger(data: bytes, split: str, file: str) -> list[ComparedRecord]:
    """Returns the rows for the records in a shard's ledger.

    Args:
      data: Contents of the ledger.
      split: Split of the shard.
      file: Name of the shard.

    Raises:
      ValueError, TypeError: If the ledger is damaged.
    """
    written = (entry for entry in load_ledger(data)[1] if entry.outcome == Outcome.WRITTEN)
    rows = []
    for number, entry in enumerate(written):
        # Images that --map made of one source may have different classes.
        label = "" if entry.source_key else entry.label
        place = split, file, number, entry.offset or 0
        rows.append(ComparedRecord(entry.key, entry.sha256 or None, *place, label))
    return rows


def compare_bucket(bucket: tuple[tuple[str, int], Iterable[bytes]]) -> Iterator[Finding]:
    """Yields the findings of one bucket: rows with one key, or one source in two splits or two classes."""
    (what, _), packs = bucket
    place, findings_of = (0, _same_key) if what == KEY else (1, _same_source)
    rows = [row for pack in packs for row in unpack_rows(pack)]
    values = Counter(row[place] for row in rows)
    if len(values) == len(rows):  # as in nearly all datasets
        return
    groups: defaultdict[str, list[ComparedRecord]] = defaultdict(list)
    for row in rows:
        if values[row[place]] > 1:
            groups[row[place]].append(ComparedRecord._make(row))
    for group in groups.values():
        yield from findings_of(sorted(group, key=lambda row: (row.file, row.number)))


def _same_key(rows: list[ComparedRecord]) -> Iterator[Finding]:
    first = rows[0]
    for row in rows[1:]:
        message = f"its key is also the key of record {first.number} of {first.file}"
        yield _finding(FindingCode.DUPLICATE_KEY, message, row, first)


def _same_source(rows: list[ComparedRecord]) -> Iterator[Finding]:
    """Yields findings for records with one source. A record in another split and class gets both findings."""
    equals = EqualPictures[ComparedRecord]()
    rows = [row for row in rows if row.split or row.label]
    for row in rows:
        equals.add(row)
    equals.settle()
    for row in rows:
        for code, other in (
            (FindingCode.SPLIT_LEAKAGE, equals.in_other_split(row)),
            (FindingCode.LABEL_CONFLICT, equals.in_other_class(row)),
        ):
            if other is not None:
                yield _finding(code, describe_pair(SAME_SOURCE, row, other), row, other)


def _finding(code: FindingCode, message: str, row: ComparedRecord, other: ComparedRecord) -> Finding:
    there = Where(other.file, other.number, other.offset, other.key)
    return Finding(code, message, row.file, row.number, row.offset, row.key, there)
