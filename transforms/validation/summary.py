"""Sums up findings and statistics for the report, so that no worker ever holds all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

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
      findings: Side input of the one FindingSummary.
      statistics: Side input of the one Statistics. None if no image was decoded.
    """

    findings: beam.pvalue.AsSingleton
    statistics: beam.pvalue.AsSingleton | None


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
        summarise = beam.CombineGlobally(SummariseFindings()).with_output_types(FindingSummary)
        summary = findings | "SummariseFindings" >> summarise.as_singleton_view()  # FindingSummary
        if self._statistics is None:
            return Summaries(summary, None)
        add_up = beam.CombineGlobally(AddUpStatistics()).with_output_types(Statistics)
        added = self._statistics | "AddUpStatistics" >> add_up.as_singleton_view()  # Statistics
        return Summaries(summary, added)
