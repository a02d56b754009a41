"""Combines the results of shards for the commit, without the numbers that repeat in each result."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from shardwright.schemas.json_values import from_json
from shardwright.schemas.ledger import ShardResult
from shardwright.schemas.ledger_lines import SourceSizes


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
            sums.sources.merge(from_json(SourceSizes, header.sources))
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
                    sources=sums.sources.as_json(),
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
