"""Compares ledger rows: what changed for each image, and which removed images returned under another key.

Small datasets are compared here as `CompareDatasets` does it, but without Beam.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.diff.rows import (
    NEW,
    OLD,
    LedgerPair,
    LedgerRow,
    by_key,
    count_of_ledger,
    read_ledger,
    rows_of,
)
from shardwright.schemas.changes import Change, Changes, Kind

#: Number of records of both datasets together up to which starting Beam takes longer than the comparison.
MAX_RECORDS = 100_000
_WHOSE = ("old", "new")

_Rows = tuple[list[LedgerRow], list[LedgerRow]]


def compare_rows(
    old: Mapping[str, LedgerRow], new: Mapping[str, LedgerRow], changes: Changes
) -> Iterator[tuple[int, LedgerRow]]:
    """Compares the images that both datasets list, and records what changed.

    Args:
      old: Rows of the old dataset, by key.
      new: Rows of the new dataset, by key.
      changes: Object that gets the changes.

    Yields:
      Pairs (side, row), one for each image that only one dataset lists.
    """
    for key, row in old.items():
        other = new.get(key)
        if other is None:
            yield OLD, row
        elif row.written and other.written:
            note_changes(row, other, changes)
        elif row.written:
            yield OLD, row._replace(note=other.note)
        elif other.written:
            yield NEW, other._replace(note=row.note)
    for key, row in new.items():
        if key not in old:
            yield NEW, row


def note_changes(old: LedgerRow, new: LedgerRow, changes: Changes) -> None:
    """Records the differences of an image that both datasets contain."""
    found = []
    if old.key != new.key:
        found.append((Kind.RENAMED, old.key, new.key))
    if old.source != new.source:
        found.append((Kind.CHANGED, old.source, new.source))
    # Only with equal keys and classes can the lengths of the two records be compared.
    elif old.stored != new.stored or (
        old.length != new.length and (old.key, old.label) == (new.key, new.label)
    ):
        found.append((Kind.RE_ENCODED, _stored(old), _stored(new)))
    if old.label != new.label:
        found.append((Kind.RELABELLED, old.label, new.label))
        changes.relabels[old.label, new.label] += 1
    if old.split != new.split:
        found.append((Kind.MOVED, old.split, new.split))
        changes.moves[old.split, new.split] += 1
    for kind, was, now in found:
        changes.note(kind, new.split, Change(new.key, was, now))
    changes.unchanged += not found


def _stored(row: LedgerRow) -> str:
    return f"{row.stored.strip() or 'stored'}, {row.length} bytes"


def note_added_or_removed(side: int, row: LedgerRow, changes: Changes) -> None:
    """Records an image that only one of the datasets contains."""
    if side == OLD:
        changes.note(Kind.REMOVED, row.split, Change(row.key, row.split, row.note))
    else:
        changes.note(Kind.ADDED, row.split, Change(row.key, row.note, row.split))


def pair_renamed(rows: Iterable[tuple[int, LedgerRow]], changes: Changes) -> None:
    """Records images whose key is in only one dataset; those with equal sources count as renamed.

    If several have the same source, they are paired in the order of their keys.
    """
    groups: defaultdict[str, tuple[list[LedgerRow], list[LedgerRow]]] = defaultdict(lambda: ([], []))
    for side, row in rows:
        groups[row.source][side].append(row)
    for gone, come in groups.values():
        gone.sort()
        come.sort()
        for old, new in zip(gone, come):
            note_changes(old, new, changes)
        for row in gone[len(come) :]:
            note_added_or_removed(OLD, row, changes)
        for row in come[len(gone) :]:
            note_added_or_removed(NEW, row, changes)


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
