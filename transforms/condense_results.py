"""Combines the results of shards for the commit, without the numbers that repeat in each result."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import apache_beam as beam
from apache_beam.utils.windowed_value import WindowedValue

from shardwright.schemas.ledger import ShardResult
from shardwright.schemas.source_sizes import SourceSizes
from shardwright.transforms.global_window import in_global_window


@dataclass
class _Sums:
    """Sums over the results of a split."""

    class_counts: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    sources: SourceSizes = field(default_factory=SourceSizes)

    def merge(self, other: _Sums) -> None:
        """Adds the sums of another object."""
        self.class_counts.update(other.class_counts)
        self.formats.update(other.formats)
        self.sources.merge(other.sources)


@dataclass
class CondensedResults:
    """Results of some shards, and the sums of each split."""

    results: list[ShardResult] = field(default_factory=list)
    sums: dict[str, _Sums] = field(default_factory=dict)

    def add(self, result: ShardResult) -> None:
        """Adds a shard's result."""
        header = result.header
        sums = self.sums.setdefault(header.split, _Sums())
        sums.class_counts.update(header.class_counts)
        sums.formats.update(header.formats)
        with contextlib.suppress(KeyError, TypeError, ValueError, IndexError):  # damaged in an earlier build
            sums.sources.merge(SourceSizes.from_state(header.sources))
        header = replace(header, class_counts={}, formats={}, sources={})
        self.results.append(replace(result, header=header))

    def merge(self, other: CondensedResults) -> None:
        """Adds the results and sums of another object."""
        self.results += other.results
        for split, sums in other.sums.items():
            self.sums.setdefault(split, _Sums()).merge(sums)

    def as_results(self) -> list[ShardResult]:
        """Returns results with the same totals: the first result of each split has the sums of the split."""
        results, left = [], dict(self.sums)
        for result in self.results:
            sums = left.pop(result.header.split, None)
            if sums is not None:
                header = replace(
                    result.header,
                    class_counts=dict(sums.class_counts),
                    formats=dict(sums.formats),
                    sources=sums.sources.state(),
                )
                result = replace(result, header=header)
            results.append(result)
        return results


def merged_results(parts: Iterable[CondensedResults]) -> CondensedResults:
    """Returns the results of all parts, which stay as they are."""
    whole = CondensedResults()
    for part in parts:
        whole.merge(part)
    return whole


class CondenseBundle(beam.DoFn):
    """Condenses the results of each bundle. `ShardResult -> CondensedResults`.

    A pipeline element may have up to 2 GB. With 1,000 classes a result has 21 kB, and nearly all of it is
    counts for each class. Only the sums of these counts are needed. Without them a result has 1 kB.
    """

    def start_bundle(self) -> None:
        """Starts without results."""
        self._condensed = CondensedResults()

    def process(self, element: ShardResult) -> Iterator[CondensedResults]:
        """Adds a result."""
        self._condensed.add(element)
        yield from ()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Yields the results of the bundle."""
        yield in_global_window(self._condensed)
