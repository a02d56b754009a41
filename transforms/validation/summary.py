"""Sums up findings and statistics for the report, so that no worker ever holds all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.typehints import with_input_types, with_output_types

from shardwright.schemas.findings import FindingSummary
from shardwright.schemas.statistics.dataset_statistics import Statistics
from shardwright.transforms.statistics.combine import AddUpStatistics


@with_input_types(FindingSummary)
@with_output_types(FindingSummary)
class SummariseFindings(beam.CombineFn):
    """Merges summaries of findings; keeps the number of findings of each code, and the first ones."""

    def create_accumulator(self) -> FindingSummary:
        """Returns an empty summary."""
        return FindingSummary()

    def add_input(self, accumulator: FindingSummary, element: FindingSummary) -> FindingSummary:
        """Adds a summary."""
        return accumulator.merge(element)

    def merge_accumulators(self, accumulators: Iterable[FindingSummary]) -> FindingSummary:
        """Merges summaries."""
        merged = FindingSummary()
        for accumulator in accumulators:
            merged.merge(accumulator)
        return merged

    def extract_output(self, accumulator: FindingSummary) -> FindingSummary:
        """Returns the summary."""
        return accumulator


class Summaries(NamedTuple):
    """Findings and statistics of a validation, summed up.

    Attributes:
      findings: PCollection of the one FindingSummary.
      statistics: PCollection of the one Statistics. None if no image was decoded.
    """

    findings: beam.PCollection
    statistics: beam.PCollection | None

    def side_inputs(self) -> tuple[Any, Any]:
        """Returns side inputs of the findings and the statistics (or None)."""
        one = beam.pvalue.AsSingleton
        return one(self.findings), None if self.statistics is None else one(self.statistics)


class SummariseValidation(beam.PTransform):
    """Sums up the findings and the statistics of all shards. `PCollection[FindingSummary] -> Summaries`.

    Args:
      statistics: PCollection of Statistics of the shards. None if no image was decoded.
    """

    def __init__(self, statistics: beam.PCollection | None) -> None:
        super().__init__()
        self._statistics = statistics

    def expand(self, findings: beam.PCollection) -> Summaries:
        """Applies the transform."""
        summary = findings | "SummariseFindings" >> beam.CombineGlobally(
            SummariseFindings()
        ).with_output_types(FindingSummary)  # FindingSummary
        if self._statistics is None:
            return Summaries(summary, None)
        added = self._statistics | "AddUpStatistics" >> beam.CombineGlobally(
            AddUpStatistics()
        ).with_output_types(Statistics)  # Statistics
        return Summaries(summary, added)
