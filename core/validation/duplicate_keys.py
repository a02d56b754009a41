"""Compares records with each other: duplicate keys, and equal source bytes in two splits or two classes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain

from shardwright.core.hash_buckets import MAX_BUCKETS, bucket_of, pack_rows, unpack_rows
from shardwright.core.validation.compared_records import (
    SAME_SOURCE,
    ComparedRecord,
    EqualPictures,
    describe_pair,
)
from shardwright.schemas.codes import FindingCode, Outcome
from shardwright.schemas.findings import Finding, Where
from shardwright.schemas.ledger import line_blocks, parsed_lines

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
    """Yields a shard's rows packed by bucket: once by key, once by source. Equal values meet in one bucket.

    Args:
      rows: Rows of the shard.
      buckets: Number of buckets of each kind (`buckets_of_rows`). All shards need the same number.
      keys: Whether to look for duplicate keys.

    Yields:
      Pairs ((what, bucket), packed rows), where `what` is `KEY` or `SOURCE`.
    """
    packed: defaultdict[tuple[str, int], list[ComparedRecord]] = defaultdict(list)
    for row in rows:
        key, source, split, file, number, offset, label = row
        if keys and key is not None:
            place = ComparedRecord(key, None, "", file, number, offset)
            packed[KEY, bucket_of(key, buckets)].append(place)
        if source is not None and (split or label):
            packed[SOURCE, bucket_of(source, buckets)].append(row)
    for bucket, found in packed.items():
        yield bucket, pack_rows(found)


def rows_of_ledger(data: bytes, split: str, file: str) -> list[ComparedRecord]:
    """Returns the rows for the records in a shard's ledger.

    Args:
      data: Contents of the ledger.
      split: Split of the shard.
      file: Name of the shard.

    Raises:
      OSError, EOFError, zlib.error, ValueError, LookupError: If the ledger is damaged.
    """
    rows: list[ComparedRecord] = []
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
