"""Compares the ledgers of two small datasets as `CompareDatasets` does, but without Beam."""

from __future__ import annotations

from collections.abc import Iterable

from shardwright.schemas.changes import Changes
from shardwright.transforms.concurrency.progress import PROGRESS
from shardwright.transforms.diff.compare import compare_rows, note_added_or_removed, pair_renamed
from shardwright.transforms.diff.rows import (
    NEW,
    OLD,
    LedgerPair,
    LedgerRow,
    by_key,
    count_of_ledger,
    read_ledger,
    rows_of,
)

#: Number of records of both datasets together up to which starting Beam takes longer than the comparison.
MAX_RECORDS = 100_000
_WHOSE = ("old", "new")

_Rows = tuple[list[LedgerRow], list[LedgerRow]]


def compare_small(pairs: Iterable[LedgerPair]) -> Changes:
    """Returns the changes between two datasets.

    Args:
      pairs: All ledgers of the two datasets.

    Raises:
      UsageError: If a ledger is missing or damaged.
      EngineError: If the storage failed.
    """
    changes = Changes()
    elsewhere: _Rows = ([], [])
    for pair in pairs:
        _compare_pair(pair, changes, elsewhere)
    unmatched: list[tuple[int, LedgerRow]] = []
    old, new = (by_key(rows, whose) for rows, whose in zip(elsewhere, _WHOSE, strict=True))
    for side, row in compare_rows(old, new, changes):
        if row.written and row.is_known:
            unmatched.append((side, row))
        elif row.written:
            note_added_or_removed(side, row, changes)
    pair_renamed(unmatched, changes)
    changes.settle()
    return changes


def _compare_pair(pair: LedgerPair, changes: Changes, elsewhere: _Rows) -> None:
    """Compares the ledgers of one place, and collects the rows that only one of them has."""
    datas = [read_ledger(place, pair.file) if place is not None else None for place in pair.places]
    same = datas[NEW]
    if same is not None and datas[OLD] == same and pair.sha256[OLD] == pair.sha256[NEW]:
        changes.unchanged += count_of_ledger(same, str(pair.places[NEW]), pair.file, pair.sha256[NEW])
        return
    rows = [
        rows_of(data, str(place), pair.file, sha256, pair.split) if data is not None else []
        for data, place, sha256 in zip(datas, pair.places, pair.sha256, strict=True)
    ]
    PROGRESS.add(listed=sum(map(len, rows)))
    for side, row in compare_rows(by_key(rows[OLD], _WHOSE[OLD]), by_key(rows[NEW], _WHOSE[NEW]), changes):
        elsewhere[side].append(row)
