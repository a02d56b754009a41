"""Adds up findings and statistics for the report, so that no worker ever holds all of them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import apache_beam as beam

from shardwright.schemas.findings import FindingSummary
from shardwright.schemas.statistics.dataset_statistics import Statistics
from shardwright.transforms.merging import MergeAll


def added_findings(*parts: Iterable[FindingSummary]) -> FindingSummary:
    """Returns the sum of findings: the number of each code, and the first ones.

    The last step of a graph gets them as side inputs, and reads one at a time. A combiner would add seven
    steps and a stage for a few small elements.

    Args:
      *parts: Summaries of findings, which stay as they are.
    """
    added = FindingSummary()
    for summary in chain.from_iterable(parts):
        added.merge(summary)
    return added


def added_statistics(statistics: beam.PCollection | None) -> beam.pvalue.AsSingleton | None:
    """Returns a side input of the sum of statistics.

    Args:
      statistics: PCollection of the Statistics of the shards. None if no image was decoded.

    Returns:
      Side input of the one Statistics. None if no image was decoded.
    """
    if statistics is None:
        return None
    add_up = beam.CombineGlobally(MergeAll(Statistics)).with_output_types(Statistics)
    return statistics | "AddUpStatistics" >> add_up.as_singleton_view()  # Statistics
