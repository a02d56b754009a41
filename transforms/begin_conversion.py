"""The first steps of a conversion: take the lease, and remove an old commit before the first write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

import apache_beam as beam

from shardwright.core import storage
from shardwright.core.commit import ConversionSpec, begin_conversion, remove_commit
from shardwright.core.lease import HeldLease, own_holder
from shardwright.core.plan.assign import PlannedShard
from shardwright.core.shards.reuse import lists_decide_otherwise, lists_may_decide
from shardwright.core.shards.shard_plan import plan_shard
from shardwright.schemas.ledger import ledger_header, load_ledger
from shardwright.schemas.plan import Forecast, ledger_file

_HOLD: Any = Optional[HeldLease]  # noqa: UP045  (what Beam reads)


class BeginConversion(beam.PTransform):
    """Takes the lease. `Pipeline -> PCollection[HeldLease or None]`.

    The result has one element. The other steps wait for it.

    Args:
      job: What to create, and where.
    """

    def __init__(self, job: ConversionSpec) -> None:
        super().__init__()
        self._job = job

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        """Applies the transform."""
        job = self._job
        begin = pipeline | "Begin" >> beam.Impulse()  # bytes
        if not job.described:
            return begin | "TakeLease" >> beam.Map(
                lambda _: begin_conversion(job.hold, job)
            ).with_output_types(_HOLD)  # HeldLease or None
        return (
            begin
            | "NameHolder" >> beam.Map(lambda _: own_holder(job.hold)).with_output_types(_HOLD)
            | "KeepHolder" >> beam.Reshuffle()  # HeldLease or None; the same when a step is run again
            | "TakeLease" >> beam.Map(begin_conversion, job).with_output_types(_HOLD)
        )  # HeldLease or None


class _FindChanged(beam.DoFn):
    """Yields whether a shard's plan differs from the plan in its ledger."""

    def __init__(self, job: ConversionSpec) -> None:
        self._job = job

    def process(self, planned: PlannedShard, forecast: Forecast) -> Iterator[bool]:
        path = storage.join(self._job.directory, ledger_file(*planned[:3]))
        plan = plan_shard(planned, forecast, self._job.settings, self._job.versions)
        try:
            data = storage.read_bytes(path)
            header = ledger_header(data)
            changed = header.plan_digest != plan.digest
            if not changed and lists_may_decide(header, plan.recipe):
                changed = lists_decide_otherwise(load_ledger(data)[1], plan.recipe)
        except (OSError, ValueError, TypeError):
            changed = True
        yield changed


class RemoveCommit(beam.PTransform):
    """Removes an old `dataset.json` if any shard changes. `PCollection[HeldLease or None] -> the same`.

    A shard that is rebuilt only because its file is damaged gets the bytes that `dataset.json` states.

    Args:
      job: What to create, and where.
      planned: PCollection of all PlannedShards.
      forecast: Side input of the one Forecast.
    """

    def __init__(
        self, job: ConversionSpec, planned: beam.PCollection, forecast: beam.pvalue.AsSingleton
    ) -> None:
        super().__init__()
        self._job = job
        self._planned = planned
        self._forecast = forecast

    def expand(self, hold: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        changed = (
            self._planned
            | "FindChanged"
            >> beam.ParDo(_FindChanged(self._job), self._forecast).with_output_types(bool)  # bool
            | "AnyChanged" >> beam.CombineGlobally(any).with_output_types(bool).as_singleton_view()
        )  # bool
        return hold | "RemoveDatasetJson" >> beam.Map(remove_commit, changed, self._job).with_output_types(
            _HOLD
        )  # HeldLease or None
