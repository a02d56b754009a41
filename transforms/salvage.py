"""`SalvageDataset`: turns damaged shards into a dataset of their sound records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Optional

import apache_beam as beam
from apache_beam.typehints import with_input_types, with_output_types

from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.lease import HeldLease, given_back, own_holder
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.salvage.commit import SalvageJob, commit_salvage, outcome_of
from shardwright.core.salvage.shard import SalvageTask, SavedShard, save_shard
from shardwright.core.shards.condensed_results import CondensedResults
from shardwright.schemas.dataset import Dataset

_HOLD: Any = Optional[HeldLease]  # noqa: UP045  (what Beam reads)


class TakeLease(beam.PTransform):
    """Takes the lease where a described job runs. `PCollection of one element -> PCollection[HeldLease]`.

    The result has one element.

    Args:
      hold: Lease that the launcher described.
    """

    def __init__(self, hold: HeldLease) -> None:
        super().__init__()
        self._hold = hold

    def expand(self, begin: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        hold = self._hold
        return (
            begin
            | "NameHolder" >> beam.Map(lambda _: own_holder(hold)).with_output_types(_HOLD)  # HeldLease
            | "KeepHolder" >> beam.Reshuffle()  # HeldLease; the same when a step is run again
            | "Acquire" >> beam.Map(_acquired).with_output_types(_HOLD)  # HeldLease
        )


def _acquired(hold: HeldLease) -> HeldLease:
    hold.acquire()
    return hold


@with_input_types(SavedShard)
@with_output_types(list[SavedShard])
class CondenseSaved(beam.CombineFn):
    """Collects saved shards for the commit, without the parts that repeat: see `CondenseBundle`.

    `SavedShard -> [SavedShard]`.
    """

    def create_accumulator(self) -> tuple[list[SavedShard], CondensedResults]:
        """Returns an empty accumulator."""
        return [], CondensedResults()

    def add_input(
        self, mutable_accumulator: tuple[list[SavedShard], CondensedResults], element: SavedShard
    ) -> tuple[list[SavedShard], CondensedResults]:
        """Adds a saved shard."""
        saved, condensed = mutable_accumulator
        if element.result is not None:
            condensed.add(element.result)
            element = replace(element, result=None)
        saved.append(element)
        return mutable_accumulator

    def merge_accumulators(
        self, accumulators: Iterable[tuple[list[SavedShard], CondensedResults]]
    ) -> tuple[list[SavedShard], CondensedResults]:
        """Merges the accumulators of several workers."""
        whole = self.create_accumulator()
        for saved, condensed in accumulators:
            whole[0].extend(saved)
            whole[1].merge(condensed)
        return whole

    def extract_output(self, accumulator: tuple[list[SavedShard], CondensedResults]) -> list[SavedShard]:
        """Returns the saved shards, by file."""
        saved, condensed = accumulator
        results = {result.header.file: result for result in condensed.as_results()}
        shards = (replace(item, result=results.get(item.file)) for item in saved)
        return sorted(shards, key=lambda item: item.file)


class _SaveShard(beam.DoFn):
    def __init__(self, decode: bool) -> None:
        self._decode = decode

    def process(self, task: SalvageTask, schema: RecordSchema) -> Iterator[SavedShard]:
        if task.hold is not None:
            task.hold.renew()
        saved = save_shard(task, schema, self._decode)
        PROGRESS.add(checked_records=saved.records, checked_shards=1, findings=len(saved.lost))
        yield saved


class SalvageDataset(beam.PTransform):
    """Saves every shard, then commits. `PCollection[SalvageTask] -> PCollection[outcome]`.

    Args:
      job: The salvage.
      schema: Side input of the record schema.
      dataset: Contents of `dataset.json`. None for foreign files.
      hold: The lease, or a side input of it. None if the run needs no lease.
    """

    def __init__(
        self, job: SalvageJob, schema: beam.PCollection, dataset: Dataset | None, hold: Any = None
    ) -> None:
        super().__init__()
        self._hold = hold
        self._job = job
        self._schema = schema
        self._dataset = dataset

    def expand(self, tasks: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        saved = (
            tasks
            | "SpreadOut" >> beam.Reshuffle()  # SalvageTask
            | "SaveShard"
            >> beam.ParDo(
                _SaveShard(self._job.decode), beam.pvalue.AsSingleton(self._schema)
            ).with_output_types(SavedShard)  # SavedShard
            | "GatherShards" >> beam.CombineGlobally(CondenseSaved()).as_singleton_view()
        )  # [SavedShard]
        return (
            tasks.pipeline
            | "Once" >> beam.Impulse()  # bytes
            | "Commit" >> beam.Map(_commit, saved, self._job, self._dataset, self._hold)
        )  # outcome


def _commit(
    _: bytes, saved: Sequence[SavedShard], job: SalvageJob, dataset: Dataset | None, hold: HeldLease | None
) -> dict[str, Any]:
    job = replace(job, hold=hold)
    if job.described and (ended := outcome_of(job)) is not None:
        return ended
    with given_back(hold if job.described else None):  # otherwise the launcher gives the lease back
        return commit_salvage(job, dataset, saved)
