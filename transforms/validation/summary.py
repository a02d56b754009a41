"""Sums findings up on the way to the report, so that no worker ever holds all of them."""

from __future__ import annotations

from collections.abc import Iterable

import apache_beam as beam
from apache_beam.typehints import with_input_types, with_output_types

from shardwright.schemas.findings import FindingSummary


@with_input_types(FindingSummary)
@with_output_types(FindingSummary)
class SummariseFindings(beam.CombineFn):
    """Merges summaries of findings; keeps the number of each code and the first of each."""

    def create_accumulator(self) -> FindingSummary:
        """Returns an empty summary."""
        return FindingSummary()

    def add_input(self, accumulator: FindingSummary, element: FindingSummary) -> FindingSummary:
        """Adds a summary."""
        return accumulator.merge(element)

    def merge_accumulators(self, accumulators: Iterable[FindingSummary]) -> FindingSummary:
        """Adds summaries together."""
        merged = FindingSummary()
        for accumulator in accumulators:
            merged.merge(accumulator)
        return merged

    def extract_output(self, accumulator: FindingSummary) -> FindingSummary:
        """Returns the summary."""
        return accumulator
