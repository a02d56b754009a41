"""Checks records against each other: doubled keys, and one source picture in two splits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from shardwright.schemas.codes import FindingCode
from shardwright.schemas.findings import Finding
from shardwright.transforms.buckets import bucket_of, pack_rows, unpack_rows
from shardwright.transforms.checks.shard import Row


def bucket_rows(rows: Iterable[Row], buckets: int) -> Iterator[tuple[tuple[str, int], bytes]]:
    """Yields a shard's rows packed by bucket: once by key, once by source; equals meet in one.

    Yields:
      ((what, bucket), packed rows), where `what` is `key` or `source`.
    """
    packed: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row.key is not None:
            packed["key", bucket_of(row.key, buckets)].append(row)
        if row.source is not None and row.split:
            packed["source", bucket_of(row.source, buckets)].append(row)
    for bucket, found in packed.items():
        yield bucket, pack_rows(found)


def compare_bucket(bucket: tuple[tuple[str, int], Iterable[bytes]]) -> Iterator[Finding]:
    """Yields the findings of one bucket: rows with the same key, or the same source in two splits."""
    (what, _), packs = bucket
    groups: defaultdict[str | None, list[Row]] = defaultdict(list)
    for pack in packs:
        for row in map(Row._make, unpack_rows(pack)):
            groups[row.key if what == "key" else row.source].append(row)
    for rows in groups.values():
        if len(rows) < 2:
            continue
        rows.sort(key=lambda row: (row.file, row.number))
        first = rows[0]
        for row in rows[1:]:
            place = f"record {first.number} of {first.file}"
            if what == "key":
                yield Finding(
                    FindingCode.DUPLICATE_KEY, f"its key is also that of {place}",
                    row.file, row.number, row.offset, row.key,
                )  # fmt: skip
            elif row.split != first.split:
                yield Finding(
                    FindingCode.SPLIT_LEAKAGE,
                    f"its source picture is also that of {place}, in split {first.split!r}",
                    row.file, row.number, row.offset, row.key,
                )  # fmt: skip
