"""The steps that commit a dataset: they take the lease, remove the old commit, and write the new one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam

from shardwright.core.commit import ConversionJob, begin_conversion, commit, remove_commit
from shardwright.core.dataset_files import own_outcome
from shardwright.core.lease import HeldLease, given_back, own_holder
from shardwright.core.plan.assign import PlannedShard
from shardwright.core.shards.finish import condense
from shardwright.core.shards.reuse import is_changed
from shardwright.core.shards.shard_plan import plan_shard
from shardwright.core.validation.shard import ShardCheck
from shardwright.schemas.errors import DataRefused
from shardwright.schemas.findings import FindingSummary
from shardwright.schemas.ledger import ShardResult
from shardwright.schemas.plan import Forecast
from shardwright.schemas.statistics import Statistics
from shardwright.transforms.building_blocks import CallOnce, added_findings, added_statistics, composite
from shardwright.transforms.runner_features import report_sink
from shardwright.transforms.validate import Validated

#: Number of results that are made small together.
_TOGETHER = 256


@composite
def BeginConversion(begin: beam.pvalue.PBegin, job: ConversionJob) -> beam.PCollection[HeldLease | None]:
    """Takes the lease of an output. `PBegin -> PCollection[HeldLease or None]`.

    The result has one element. The other steps wait for it.

    Args:
      begin: The pipeline.
      job: What to create, and where. Each run of a job that was only described is another holder.
    """
    if not job.described:
        take = CallOnce(begin_conversion, job.hold, job)
        return begin | "Take" >> take.with_output_types(HeldLease | None)  # HeldLease or None
    return (
        begin
        | "NameHolder"
        >> CallOnce(own_holder, job.hold).with_output_types(HeldLease | None)  # HeldLease or None
        | "KeepHolder" >> beam.Reshuffle()  # HeldLease or None; the same when a step is run again
        | "Take" >> beam.Map(begin_conversion, job).with_output_types(HeldLease | None)
    )  # HeldLease or None


@composite
def RemoveCommit(
    hold: beam.PCollection[HeldLease | None],
    job: ConversionJob,
    planned: beam.PCollection[PlannedShard],
    forecast: beam.PCollection[Forecast],
) -> beam.PCollection[HeldLease | None]:
    """Removes an old `dataset.json` if any shard changes. `PCollection[HeldLease or None] -> the same`.

    A shard that is rebuilt only because its file is damaged gets the bytes that `dataset.json` states.

    Args:
      hold: The lease.
      job: What to create, and where.
      planned: PCollection of all PlannedShards.
      forecast: PCollection of the one Forecast.
    """
    changed = planned | "FindChanged" >> beam.Map(
        lambda planned, forecast: is_changed(
            job.directory, plan_shard(planned, forecast, job.settings, job.versions)
        ),
        beam.pvalue.AsSingleton(forecast),
    ).with_output_types(bool)  # bool
    return hold | "RemoveDatasetJson" >> beam.Map(
        lambda hold, changed: remove_commit(hold, any(changed), job), beam.pvalue.AsIter(changed)
    ).with_output_types(HeldLease | None)  # HeldLease or None


@composite
def CondenseResults(results: beam.PCollection[ShardResult]) -> beam.PCollection[ShardResult]:
    """Makes the results of shards small. `PCollection[ShardResult] -> PCollection[ShardResult]`.

    One step reads the results of all shards together, and condenses them again. A pipeline element may have
    up to 2 GB.

    Args:
      results: The results of all shards.
    """
    return (
        results
        | "BatchResults" >> beam.BatchElements(_TOGETHER, _TOGETHER, clock=time.monotonic)  # [ShardResult]
        | "Condense" >> beam.FlatMap(condense).with_output_types(ShardResult)  # ShardResult
    )


@composite
def CommitDataset(
    results: beam.PCollection[ShardResult],
    job: ConversionJob,
    forecast: beam.PCollection[Forecast],
    verified: Validated,
    hold: beam.PCollection[HeldLease | None],
) -> beam.PCollection[dict[str, Any]]:
    """Commits a dataset. `PCollection[ShardResult] -> PCollection[outcome]`.

    Args:
      results: The shards.
      job: The conversion.
      forecast: PCollection of the one Forecast.
      verified: Results of checking the shards.
      hold: PCollection of the lease, or of None.
    """
    condensed = results | "CondenseResults" >> CondenseResults()  # ShardResult
    return results.pipeline | "Commit" >> CallOnce(
        _commit,
        job,
        beam.pvalue.AsIter(condensed),
        beam.pvalue.AsSingleton(forecast),
        beam.pvalue.AsList(verified.checks) if verified.checks is not None else [],
        beam.pvalue.AsIter(verified.findings),
        added_statistics(verified.statistics),
        beam.pvalue.AsSingleton(hold),
    )  # outcome


def _commit(
    job: ConversionJob,
    results: Iterable[ShardResult],
    forecast: Forecast,
    checks: Sequence[ShardCheck],
    findings: Iterable[FindingSummary],
    statistics: Statistics | None,
    hold: HeldLease | None,
) -> dict[str, Any]:
    job = replace(job, hold=hold)
    # An earlier attempt of this step may have refused the data and given the lease back.
    if job.described and (refusal := own_outcome(job.directory, hold).get("message")):
        raise DataRefused(str(refusal))
    with given_back(hold if job.described else None):  # otherwise the launcher gives the lease back
        outcome = commit(job, forecast, condense(results), checks, added_findings(findings), statistics)
    report_sink(job.output)
    return outcome
