"""Adds up statistics."""

from __future__ import annotations

from collections.abc import Iterable

import apache_beam as beam

from shardwright.schemas.statistics.dataset_statistics import Statistics


class AddUpStatistics(beam.CombineFn):
    """Merges the statistics of shards."""

    def create_accumulator(self) -> Statistics:
        """Returns empty statistics."""
        return Statistics()

    def add_input(self, accumulator: Statistics, element: Statistics) -> Statistics:
        """Adds the statistics of a shard."""
        return accumulator.merge(element)

    def merge_accumulators(self, accumulators: Iterable[Statistics]) -> Statistics:
        """Adds up several accumulators."""
        merged = Statistics()
        for accumulator in accumulators:
            merged.merge(accumulator)
        return merged

    def extract_output(self, accumulator: Statistics) -> Statistics:
        """Returns the statistics."""
        return accumulator
