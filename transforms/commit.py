"""`CommitDataset`: the last step of a conversion; and the results of shards, condensed for such a step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
from apache_beam.utils.windowed_value import WindowedValue

from shardwright.core.commit import ConversionSpec, commit, refused_before
from shardwright.core.lease import HeldLease, given_back
from shardwright.core.shards.condensed_results import CondensedResults, merged_results
from shardwright.core.validation.shard import ShardCheck
from shardwright.schemas.errors import DataRefused
from shardwright.schemas.findings import FindingSummary
from shardwright.schemas.ledger import ShardResult
from shardwright.schemas.plan import Forecast
from shardwright.schemas.statistics.dataset_statistics import Statistics
from shardwright.transforms.lineage import report_sink
from shardwright.transforms.merging import added_findings, added_statistics, in_global_window


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


class CommitDataset(beam.PTransform):
    """Commits a dataset. `PCollection[ShardResult] -> PCollection[outcome]`.

    Args:
      job: The conversion.
      forecast: PCollection of the one Forecast.
      checks: PCollection of ShardCheck. None if the shards were not verified.
      findings: PCollections of FindingSummary.
      statistics: PCollection of Statistics of the shards. None if no image was decoded.
      hold: Side input of the lease. None to use the job's own lease.
    """

    def __init__(
        self,
        job: ConversionSpec,
        forecast: beam.PCollection,
        checks: beam.PCollection | None = None,
        findings: Sequence[beam.PCollection] = (),
        statistics: beam.PCollection | None = None,
        hold: beam.pvalue.AsSingleton | None = None,
    ) -> None:
        super().__init__()
        self._job = job
        self._forecast = forecast
        self._checks = checks
        self._findings = findings
        self._statistics = statistics
        self._hold = hold

    def expand(self, results: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        checks: Any = beam.pvalue.AsList(self._checks) if self._checks is not None else []
        condensed = results | "CondenseBundle" >> beam.ParDo(CondenseBundle()).with_output_types(
            CondensedResults
        )  # CondensedResults of a bundle
        return (
            results.pipeline
            | "Once" >> beam.Impulse()  # bytes
            | "Commit"
            >> beam.Map(
                _commit,
                self._job,
                beam.pvalue.AsIter(condensed),
                beam.pvalue.AsSingleton(self._forecast),
                checks,
                added_statistics(self._statistics),
                self._hold or self._job.hold,
                *map(beam.pvalue.AsIter, self._findings),
            )
        )  # outcome


def _commit(
    _: bytes,
    job: ConversionSpec,
    condensed: Iterable[CondensedResults],
    forecast: Forecast,
    checks: Sequence[ShardCheck],
    statistics: Statistics | None,
    hold: HeldLease | None,
    *findings: Iterable[FindingSummary],
) -> dict[str, Any]:
    job, results = replace(job, hold=hold), merged_results(condensed).as_results()
    if job.described and (refusal := refused_before(job)):
        raise DataRefused(refusal)
    with given_back(hold if job.described else None):  # otherwise the launcher gives the lease back
        outcome = commit(job, forecast, results, checks, added_findings(*findings), statistics)
    report_sink(job.output)
    return outcome
