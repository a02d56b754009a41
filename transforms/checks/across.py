"""Checks records against each other: doubled keys, and one source picture in two splits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from shardwright.schemas.codes import FindingCode, Outcome
from shardwright.schemas.findings import Finding
from shardwright.transforms.buckets import bucket_of, pack_rows, unpack_rows
from shardwright.transforms.checks.ledger import ledger_lines
from shardwright.transforms.checks.shard import Row


def bucket_rows(
    rows: Iterable[Row], buckets: int, keys: bool = True
) -> Iterator[tuple[tuple[str, int], bytes]]:
    """Yields a shard's rows packed by bucket: once by key, once by source; equals meet in one.

    Args:
      rows: of the shard.
      buckets: how many there are of each kind.
      keys: whether any key may be there twice.

    Yields:
      ((what, bucket), packed rows), where `what` is `key` or `source`.
    """
    packed: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if keys and row.key is not None:
            packed["key", bucket_of(row.key, buckets)].append(row)
        if row.source is not None and row.split:
            packed["source", bucket_of(row.source, buckets)].append(row)
    for bucket, found in packed.items():
        yield bucket, pack_rows(found)


def rows_of_ledger(data: bytes, split: str, file: str) -> Iterator[Row]:
    """Yields what a shard's ledger says of its records.

    Args:
      data: of the ledger.
      split: of the shard.
      file: its name.

    Raises:
      OSError, EOFError, zlib.error, ValueError, LookupError: if it is damaged.
    """
    written = (line for line in ledger_lines(data) if line.get("outcome") == Outcome.WRITTEN)
    for number, line in enumerate(written):
        yield Row(line["key"], line.get("sha256"), split, file, number, line["offset"])


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
