"""`CompareDatasets`: compares the ledgers of two datasets and sums up the changes."""

from __future__ import annotations

import dataclasses
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from shardwright.core import diff
from shardwright.core.hash_buckets import bucket_count
from shardwright.schemas.drift import MAX_PAIRS, Changes
from shardwright.transforms.building_blocks import CallOnce, composite, merge_all, tagged

#: Old and new classes, and the number of images that changed from the one to the other.
Relabel = tuple[tuple[str, str], int]

_ROWS = "rows"
_RELABELS = "relabels"


def _compare_ledgers(pair: diff.LedgerPair, lost_is_empty: bool) -> Iterator[Any]:
    """Compares the ledgers of one place; yields by key the rows that only one of them has."""
    changes = Changes()
    unmatched = diff.compare_place(pair, changes, lost_is_empty)
    yield from tagged(_ROWS, diff.pack_by_bucket(unmatched, "key", bucket_count(pair.records)))
    yield from _settled(changes)


def _compare_bucket(bucket: tuple[int, Iterable[bytes]], pairs: Iterable[diff.LedgerPair]) -> Iterator[Any]:
    """Compares rows that met by key; yields by source the rows that only one dataset has."""
    changes = Changes()
    unmatched = diff.compare_elsewhere(diff.unpack_bucket(bucket[1]), changes)
    buckets = bucket_count(next(iter(pairs)).records)
    yield from tagged(_ROWS, diff.pack_by_bucket(unmatched, "source", buckets))
    yield from _settled(changes)


def _pair_renamed(bucket: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
    """Pairs removed and added images by their source; the remaining ones were really removed or added."""
    changes = Changes()
    diff.pair_renamed(diff.unpack_bucket(bucket[1]), changes)
    yield from _settled(changes)


def _settled(changes: Changes) -> Iterator[Any]:
    """Yields the sum of the changes of a place or bucket, and its class pairs separately."""
    yield from tagged(_RELABELS, changes.relabels.items())
    changes.relabels.clear()
    changes.settle()
    yield changes


def _with_relabels(total: Changes, relabels: Iterable[Relabel]) -> Changes:
    """Returns the changes with the most frequent class pairs, and the number of pairs."""
    most = heapq.nsmallest(MAX_PAIRS, relabels, key=lambda relabel: (-relabel[1], relabel[0]))
    return dataclasses.replace(total, relabels=Counter(dict(most)), pairs=sum(1 for _ in relabels))


@composite
def CompareDatasets(
    pairs: beam.PCollection[diff.LedgerPair], lost_is_empty: bool = False
) -> beam.PCollection[Changes]:
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
        >> beam.FlatMap(_compare_ledgers, lost_is_empty).with_outputs(_ROWS, _RELABELS, main="changes")
    )  # Changes, (bucket, rows), Relabel
    by_keys = (
        in_place[_ROWS]
        | "GroupByKeys" >> beam.GroupByKey()  # (bucket, [rows])
        | "CompareBucket"
        >> beam.FlatMap(_compare_bucket, beam.pvalue.AsIter(pairs)).with_outputs(
            _ROWS, _RELABELS, main="changes"
        )
    )  # Changes, (bucket, rows), Relabel
    by_source = (
        by_keys[_ROWS]
        | "GroupBySource" >> beam.GroupByKey()  # (bucket, [rows])
        | "PairRenamed" >> beam.FlatMap(_pair_renamed).with_outputs(_ROWS, _RELABELS, main="changes")
    )  # Changes, (bucket, rows), Relabel
    steps = (in_place, by_keys, by_source)
    relabels = (
        tuple(step[_RELABELS] for step in steps)
        | "AllRelabels" >> beam.Flatten()  # Relabel
        | "SumRelabels" >> beam.CombinePerKey(sum)  # Relabel
    )
    # A shard may list thousands of changes, so they are added up where they are found.
    changes = (
        tuple(step.changes for step in steps)
        | "AllChanges" >> beam.Flatten()  # Changes
        | "SumChanges" >> beam.CombineGlobally(merge_all(Changes)).as_singleton_view()
    )  # Changes
    return pairs.pipeline | "WithRelabels" >> CallOnce(
        _with_relabels, changes, beam.pvalue.AsIter(relabels)
    ).with_output_types(Changes)  # Changes
