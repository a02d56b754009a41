"""Compares the ledgers of two small datasets as `CompareDatasets` does, but without Beam."""

from __future__ import annotations

from collections.abc import Iterable

from shardwright.schemas.changes import Changes
from shardwright.transforms.concurrency.progress import PROGRESS
from shardwright.transforms.diff.compare import compare_rows, note_gone_or_come, pair_renamed
from shardwright.transforms.diff.rows import (
    NEW,
    OLD,
    LedgerPair,
    LedgerRow,
    by_key,
    ledger_rows,
    open_ledger,
    read_ledger,
)

#: Number of records of both datasets together up to which starting Beam takes longer than the comparison.
MOST_RECORDS = 100_000
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
            note_gone_or_come(side, row, changes)
    pair_renamed(unmatched, changes)
    changes.settle()
    return changes


def _compare_pair(pair: LedgerPair, changes: Changes, elsewhere: _Rows) -> None:
    """Compares the ledgers of one place, and collects the rows that only one of them has."""
    datas = [read_ledger(place, pair.file) if place is not None else None for place in pair.places]
    same = datas[NEW]
    if same is not None and datas[OLD] == same and pair.sha256[OLD] == pair.sha256[NEW]:
        changes.unchanged += open_ledger(same, str(pair.places[NEW]), pair.file, pair.sha256[NEW])[0]
        return
    found: _Rows = ([], [])
    for side, data in enumerate(datas):
        if data is not None:
            place = str(pair.places[side])
            found[side].extend(ledger_rows(data, place, pair.file, pair.sha256[side], pair.split))
    PROGRESS.add(listed=len(found[OLD]) + len(found[NEW]))
    old, new = (by_key(rows, whose) for rows, whose in zip(found, _WHOSE, strict=True))
    for side, row in compare_rows(old, new, changes):
        elsewhere[side].append(row)
