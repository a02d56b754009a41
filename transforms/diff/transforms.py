"""`CompareDatasets`: the ledgers of two datasets in, what became of the images out."""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from shardwright.schemas.changes import MAX_PAIRS, Changes
from shardwright.schemas.errors import UsageError
from shardwright.transforms.concurrency.progress import PROGRESS
from shardwright.transforms.diff.compare import compare_rows, note_gone_or_come, pair_renamed
from shardwright.transforms.diff.rows import (
    NEW,
    OLD,
    LedgerPair,
    LedgerRow,
    Packer,
    bucket_count,
    by_key,
    ledger_rows,
    open_ledger,
    read_ledger,
    unpack_rows,
)
from shardwright.transforms.plan.transforms import in_global_window

#: Old and new classes, and how many images changed from those to these.
Relabel = tuple[tuple[str, str], int]

_ROWS = "rows"
_RELABELS = "relabels"
_WHOSE = ("old", "new")
#: Different pairs of classes that a worker holds before it hands them on.
_MAX_HELD = 10_000


class _Comparing(beam.DoFn):
    """What the steps that find changes share: they hand on sums, not single changes."""

    def start_bundle(self) -> None:
        self._changes = Changes()
        self._packer = self._make_packer()

    def _make_packer(self) -> Packer:
        raise NotImplementedError

    def _relabels(self) -> Iterator[Any]:
        """Yields the pairs of classes when there are many."""
        if len(self._changes.relabels) >= _MAX_HELD:
            yield from (beam.pvalue.TaggedOutput(_RELABELS, item) for item in self._changes.relabels.items())
            self._changes.relabels.clear()

    def finish_bundle(self) -> Iterator[Any]:
        for rows in self._packer.rest():
            yield beam.pvalue.TaggedOutput(_ROWS, in_global_window(rows))
        for item in self._changes.relabels.items():
            yield beam.pvalue.TaggedOutput(_RELABELS, in_global_window(item))
        self._changes.relabels.clear()
        self._changes.settle()
        yield in_global_window(self._changes)


class _CompareLedgers(_Comparing):
    """Compares the ledgers of one place; sends on by its key what only one of them names."""

    def __init__(self, lost_is_empty: bool) -> None:
        self._lost_is_empty = lost_is_empty

    def _make_packer(self) -> Packer:
        return Packer(lambda row: row.key)

    def process(self, pair: LedgerPair) -> Iterator[Any]:
        old_data, new_data = datas = [self._data(pair, side) for side in (OLD, NEW)]
        if new_data is not None and old_data == new_data and pair.sha256[OLD] == pair.sha256[NEW]:
            self._changes.unchanged += open_ledger(
                new_data, str(pair.places[NEW]), pair.file, pair.sha256[NEW]
            )[0]
            return
        rows = [self._rows(pair, side, data) for side, data in enumerate(datas)]
        PROGRESS.add(listed=len(rows[OLD]) + len(rows[NEW]))
        old, new = (by_key(found, whose) for found, whose in zip(rows, _WHOSE, strict=True))
        for side, row in compare_rows(old, new, self._changes):
            for packed in self._packer.add(side, row, bucket_count(pair.records)):
                yield beam.pvalue.TaggedOutput(_ROWS, packed)
        yield from self._relabels()

    def _data(self, pair: LedgerPair, side: int) -> bytes | None:
        place = pair.places[side]
        if place is None:
            return None
        with self._losses(side):
            return read_ledger(place, pair.file)
        return None

    def _rows(self, pair: LedgerPair, side: int, data: bytes | None) -> list[LedgerRow]:
        if data is None:
            return []
        with self._losses(side):
            return ledger_rows(data, str(pair.places[side]), pair.file, pair.sha256[side], pair.split)
        return []

    def _losses(self, side: int) -> contextlib.AbstractContextManager[None]:
        """Lets a ledger be lost where that is no error."""
        lost = self._lost_is_empty and side == OLD
        return contextlib.suppress(UsageError) if lost else contextlib.nullcontext()


class _CompareBucket(_Comparing):
    """Compares rows that met by their key; sends on by its source what only one dataset holds."""

    def _make_packer(self) -> Packer:
        return Packer(lambda row: row.source)

    def process(
        self, bucket: tuple[int, Iterable[tuple[int, bytes]]], pairs: Iterable[LedgerPair]
    ) -> Iterator[Any]:
        buckets = bucket_count(next(iter(pairs)).records)
        rows: tuple[list[LedgerRow], list[LedgerRow]] = ([], [])
        for side, pack in bucket[1]:
            rows[side].extend(unpack_rows(pack))
        old, new = (by_key(found, whose) for found, whose in zip(rows, _WHOSE, strict=True))
        for side, row in compare_rows(old, new, self._changes):
            if row.written and row.is_known:
                for packed in self._packer.add(side, row, buckets):
                    yield beam.pvalue.TaggedOutput(_ROWS, packed)
            elif row.written:
                note_gone_or_come(side, row, self._changes)
        yield from self._relabels()


class _PairRenamed(_Comparing):
    """Pairs images that went with those that came, by their source; the others went or came indeed."""

    def _make_packer(self) -> Packer:
        return Packer(lambda row: row.source)

    def process(self, bucket: tuple[int, Iterable[tuple[int, bytes]]]) -> Iterator[Any]:
        packs = bucket[1]
        pair_renamed(((side, row) for side, pack in packs for row in unpack_rows(pack)), self._changes)
        yield from self._relabels()


class _SumChanges(beam.CombineFn):
    """Adds changes up."""

    def create_accumulator(self) -> Changes:
        return Changes()

    def add_input(self, total: Changes, found: Changes) -> Changes:
        total.merge(found)
        return total

    def merge_accumulators(self, totals: Iterable[Changes]) -> Changes:
        merged = Changes()
        for total in totals:
            merged.merge(total)
        return merged

    def extract_output(self, total: Changes) -> Changes:
        return total


def _with_relabels(total: Changes, relabels: Iterable[Relabel]) -> Changes:
    """Returns the changes with the most frequent pairs of classes, and how many pairs there are."""
    most = heapq.nlargest(MAX_PAIRS, relabels, key=_frequency)
    return dataclasses.replace(total, relabels=Counter(dict(most)), pairs=sum(1 for _ in relabels))


def _frequency(relabel: Relabel) -> tuple[int, tuple[str, str]]:
    """Orders pairs of classes by their images, and equals the other way round by name."""
    (old, new), count = relabel
    return count, (_turned(old), _turned(new))


def _turned(name: str) -> str:
    """Returns a text that is the greater the smaller the name is."""
    return "".join(chr(0x10FFFF - ord(char)) for char in name) + "\U0010ffff"


class CompareDatasets(beam.PTransform):
    """Compares two datasets image by image. `PCollection[LedgerPair] -> PCollection[Changes]` of one.

    Nothing but what the ledgers say is read. Images that have the same place in both datasets are compared
    where their ledgers are read; others meet by their key, and what has no like then by its source.

    Args:
      lost_is_empty: what an old ledger said that is lost counts as nothing, where it would be an error.
    """

    def __init__(self, lost_is_empty: bool = False) -> None:
        super().__init__()
        self._lost_is_empty = lost_is_empty

    def expand(self, pairs: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        in_place = (
            pairs
            | "SpreadOut" >> beam.Reshuffle()  # LedgerPair
            | "CompareLedgers"
            >> beam.ParDo(_CompareLedgers(self._lost_is_empty)).with_outputs(_ROWS, _RELABELS, main="changes")
        )  # Changes, PackedRows, Relabel
        by_keys = (
            in_place[_ROWS]
            | "GroupByKeys" >> beam.GroupByKey()  # (bucket, [(side, rows)])
            | "CompareBucket"
            >> beam.ParDo(_CompareBucket(), beam.pvalue.AsIter(pairs)).with_outputs(
                _ROWS, _RELABELS, main="changes"
            )
        )  # Changes, PackedRows, Relabel
        by_source = (
            by_keys[_ROWS]
            | "GroupBySource" >> beam.GroupByKey()  # (bucket, [(side, rows)])
            | "PairRenamed" >> beam.ParDo(_PairRenamed()).with_outputs(_ROWS, _RELABELS, main="changes")
        )  # Changes, PackedRows, Relabel
        steps = (in_place, by_keys, by_source)
        relabels = (
            tuple(step[_RELABELS] for step in steps)
            | "AllRelabels" >> beam.Flatten()  # Relabel
            | "SumRelabels" >> beam.CombinePerKey(sum)  # Relabel
        )
        return (
            tuple(step.changes for step in steps)
            | "AllChanges" >> beam.Flatten()  # Changes
            | "SumChanges" >> beam.CombineGlobally(_SumChanges())  # Changes
            | "WithRelabels"
            >> beam.Map(_with_relabels, beam.pvalue.AsIter(relabels)).with_output_types(Changes)  # Changes
        )
