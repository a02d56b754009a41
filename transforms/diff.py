"""`CompareDatasets`: compares the ledgers of two datasets and sums up the changes."""

from __future__ import annotations

import dataclasses
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

import apache_beam as beam

from shardwright.core.diff import (
    LedgerPair,
    LedgerRow,
    Packer,
    bucket_count,
    compare_elsewhere,
    compare_place,
    pair_renamed,
    unpack_rows,
)
from shardwright.schemas.drift import MAX_PAIRS, Changes
from shardwright.transforms.building_blocks import MergeAll, composite, in_global_window

#: Old and new classes, and the number of images that changed from the one to the other.
Relabel = tuple[tuple[str, str], int]

_ROWS = "rows"
_RELABELS = "relabels"
#: Number of different class pairs that a worker collects before it emits them.
_MAX_HELD = 10_000


class _Comparing(beam.DoFn):
    """Base class of the steps that find changes. They emit sums, not single changes.

    Args:
      meet_by: Field of the rows by which those meet later that only one dataset has here.
    """

    def __init__(self, meet_by: str = "source") -> None:
        self._meet_by = meet_by

    def start_bundle(self) -> None:
        self._changes = Changes()
        self._packer = Packer(attrgetter(self._meet_by))

    def _packed(self, rows: Iterable[tuple[int, LedgerRow]], buckets: int) -> Iterator[Any]:
        """Yields rows by bucket, and the class pairs when there are many."""
        for side, row in rows:
            for packed in self._packer.add(side, row, buckets):
                yield beam.pvalue.TaggedOutput(_ROWS, packed)
        yield from self._relabels()

    def _relabels(self) -> Iterator[Any]:
        """Yields the class pairs when there are many."""
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
    """Compares the ledgers of one place; emits by key the rows that only one of them has."""

    def __init__(self, lost_is_empty: bool) -> None:
        super().__init__(meet_by="key")
        self._lost_is_empty = lost_is_empty

    def process(self, pair: LedgerPair) -> Iterator[Any]:
        unmatched = compare_place(pair, self._changes, self._lost_is_empty)
        yield from self._packed(unmatched, bucket_count(pair.records))


class _CompareBucket(_Comparing):
    """Compares rows that met by key; emits by source the rows that only one dataset has."""

    def process(
        self, bucket: tuple[int, Iterable[tuple[int, bytes]]], pairs: Iterable[LedgerPair]
    ) -> Iterator[Any]:
        unmatched = compare_elsewhere(_unpacked(bucket), self._changes)
        yield from self._packed(unmatched, bucket_count(next(iter(pairs)).records))


class _PairRenamed(_Comparing):
    """Pairs removed and added images by their source; the remaining ones were really removed or added."""

    def process(self, bucket: tuple[int, Iterable[tuple[int, bytes]]]) -> Iterator[Any]:
        pair_renamed(_unpacked(bucket), self._changes)
        yield from self._relabels()


def _unpacked(bucket: tuple[int, Iterable[tuple[int, bytes]]]) -> Iterator[tuple[int, LedgerRow]]:
    """Yields the rows of a bucket, each with its side."""
    return ((side, row) for side, pack in bucket[1] for row in unpack_rows(pack))


def _with_relabels(_: bytes, total: Changes, relabels: Iterable[Relabel]) -> Changes:
    """Returns the changes with the most frequent class pairs, and the number of pairs."""
    most = heapq.nsmallest(MAX_PAIRS, relabels, key=lambda relabel: (-relabel[1], relabel[0]))
    return dataclasses.replace(total, relabels=Counter(dict(most)), pairs=sum(1 for _ in relabels))


@composite
def CompareDatasets(pairs: beam.PCollection, lost_is_empty: bool = False) -> beam.PCollection:
    """Compares two datasets image by image. `PCollection[LedgerPair] -> PCollection[Changes]`.

    It reads only ledgers. Images with the same place in both datasets are compared where their ledgers are
    read. The others meet by key, and those that are still without a match meet by source. The result has one
    element.

    Args:
      pairs: The ledgers of both datasets.
      lost_is_empty: Whether a lost ledger of the old dataset counts as empty. Otherwise it is an error.
    """
    in_place = (
        pairs
        | "SpreadOut" >> beam.Reshuffle()  # LedgerPair
        | "CompareLedgers"
        >> beam.ParDo(_CompareLedgers(lost_is_empty)).with_outputs(_ROWS, _RELABELS, main="changes")
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
    changes = (
        tuple(step.changes for step in steps)
        | "AllChanges" >> beam.Flatten()  # Changes
        | "SumChanges" >> beam.CombineGlobally(MergeAll(Changes)).as_singleton_view()
    )  # Changes
    return (
        pairs.pipeline
        | "Once" >> beam.Impulse()  # bytes
        | "WithRelabels"
        >> beam.Map(_with_relabels, changes, beam.pvalue.AsIter(relabels)).with_output_types(Changes)
    )  # Changes
