"""Compares records with each other: duplicate keys, and equal source bytes in two splits or two classes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from shardwright.core.hash_buckets import MAX_BUCKETS, pack_columns, places_by_bucket, unpack_columns
from shardwright.core.validation.compared_records import (
    SAME_SOURCE,
    ComparedRecord,
    ComparedRecords,
    EqualPictures,
    describe_pair,
)
from shardwright.schemas.codes import FindingCode, Outcome
from shardwright.schemas.findings import Finding, Where
from shardwright.schemas.ledger import line_blocks, parsed_lines

#: Numbers of the columns of `ComparedRecord` whose values are compared.
_KEY, _SOURCE = ComparedRecord._fields.index("key"), ComparedRecord._fields.index("source")
#: What is compared in a bucket: keys, sources, or both.
KEY, SOURCE, ALL = "key", "source", "all"
#: Number of rows that meet in a bucket on average. They take 15 MB.
_ROWS_PER_BUCKET = 50_000


def buckets_of_rows(records: int) -> int:
    """Returns the number of buckets of each kind for the rows of all records of a dataset.

    Each shard packs its rows for each bucket, so many buckets cost small datasets more than the comparison.
    """
    return min(max(-(-records // _ROWS_PER_BUCKET), 1), MAX_BUCKETS)


def bucket_rows(
    rows: ComparedRecords, buckets: int, keys: bool = True
) -> Iterator[tuple[tuple[str, int], bytes]]:
    """Yields a shard's rows packed by bucket: once by key, once by source. Equal values meet in one bucket.

    Args:
      rows: Rows of the shard.
      buckets: Number of buckets of each kind (`buckets_of_rows`). All shards need the same number.
      keys: Whether to look for duplicate keys.

    Yields:
      Pairs ((what, bucket), packed rows), where `what` is `KEY` or `SOURCE`; `ALL` if one bucket of each kind
      would hold the same rows.
    """
    columns = rows.columns
    if keys and buckets == 1:
        if columns[0]:
            yield (ALL, 0), pack_columns(columns)
        return
    key, source, split, _, _, _, label = columns
    if keys:
        known = [place for place, name in enumerate(key) if name is not None]
        for bucket, found in _by_bucket(columns, _KEY, known, buckets):
            unknown, empty = (None,), ("",)  # only sources are compared by these
            names, _, _, file, number, offset, _ = found
            count = len(names)
            yield (
                (KEY, bucket),
                pack_columns((names, unknown * count, empty * count, file, number, offset, empty * count)),
            )
    comparable = [
        place
        for place, (digest, part, name) in enumerate(zip(source, split, label))
        if digest is not None and (part or name)
    ]
    for bucket, found in _by_bucket(columns, _SOURCE, comparable, buckets):
        yield (SOURCE, bucket), pack_columns(found)


def _by_bucket(
    columns: Sequence[Sequence[Any]], by: int, places: list[int], buckets: int
) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
    """Yields the rows at some places by bucket, as columns.

    Args:
      columns: All rows, as columns.
      by: Number of the column with the names that decide the buckets.
      places: Places of the rows.
      buckets: Number of buckets.
    """
    if len(places) < len(columns[by]):
        columns = [tuple([column[place] for place in places]) for column in columns]
    equal = [column[:1] if column and column.count(column[0]) == len(column) else () for column in columns]
    for bucket, found in places_by_bucket(columns[by], buckets):
        pick = itemgetter(*found) if len(found) > 1 else None
        yield (
            bucket,
            [
                tuple(same) * len(found) if same else pick(column) if pick else (column[found[0]],)
                for same, column in zip(equal, columns)
            ],
        )


def rows_of_ledger(data: bytes, split: str, file: str) -> ComparedRecords:
    """Returns the rows for the records in a shard's ledger.

    Args:
      data: Contents of the ledger.
      split: Split of the shard.
      file: Name of the shard.

    Raises:
      OSError, EOFError, zlib.error, ValueError, LookupError: If the ledger is damaged.
    """
    rows = ComparedRecords()
    for line in chain.from_iterable(map(parsed_lines, line_blocks(data))):
        if line.get("outcome") == Outcome.WRITTEN:
            # Images that --map made of one source may have different classes.
            label = "" if line.get("source_key") else line.get("label", "")
            place = split, file, len(rows), line["offset"]
            rows.append(ComparedRecord(line["key"], line.get("sha256"), *place, label))
    return rows


def compare_bucket(bucket: tuple[tuple[str, int], Iterable[bytes]]) -> Iterator[Finding]:
    """Yields the findings of one bucket: rows with one key, or one source in two splits or two classes."""
    (what, _), packs = bucket
    columns: list[list[Any]] = [[] for _ in ComparedRecord._fields]
    for pack in packs:
        for column, values in zip(columns, unpack_columns(pack)):
            column += values
    if what in (ALL, KEY):
        for rows in _equal_rows(columns, _KEY):
            yield from _same_key(rows)
    if what in (ALL, SOURCE):
        for rows in _equal_rows(columns, _SOURCE):
            yield from _same_source(rows)


def _equal_rows(columns: Sequence[Sequence[Any]], by: int) -> Iterator[list[ComparedRecord]]:
    """Yields the rows of each value that several rows have, in the order of their places.

    Args:
      columns: All rows, as columns.
      by: Number of the column with the values.
    """
    values = columns[by]
    if len(set(values)) == len(values):  # as in nearly all datasets
        return
    places = defaultdict[str, list[int]](list)
    for place, value in enumerate(values):
        if value is not None:
            places[value].append(place)
    for found in places.values():
        if len(found) > 1:
            rows = [ComparedRecord(*[column[place] for column in columns]) for place in found]
            yield sorted(rows, key=lambda row: (row.file, row.number))


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
