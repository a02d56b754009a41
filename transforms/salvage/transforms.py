"""`SalvageDataset`: damaged shards in, a dataset of what is sound out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam

from shardwright.schemas.dataset import Dataset
from shardwright.transforms.concurrency.pool import converting_executor
from shardwright.transforms.concurrency.progress import PROGRESS
from shardwright.transforms.records.record_schema import RecordSchema
from shardwright.transforms.salvage.commit import SalvageJob, commit_files, commit_salvage
from shardwright.transforms.salvage.shard import SalvageTask, SavedShard, save_shard


class _SaveShard(beam.DoFn):
    def __init__(self, decode: bool) -> None:
        self._decode = decode

    def process(self, task: SalvageTask, contract: RecordSchema) -> Iterator[SavedShard]:
        if task.hold is not None:
            task.hold.renew()
        saved = save_shard(task, contract, self._decode, converting_executor())
        PROGRESS.add(checked_records=saved.records, checked_shards=1, findings=len(saved.lost))
        yield saved


class SalvageDataset(beam.PTransform):
    """Saves every shard, then commits. `PCollection[SalvageTask] -> PCollection[outcome]`.

    Args:
      job: what is saved, and where.
      contract: side input, what every record promises.
      dataset: what `dataset.json` says; None for foreign files.
    """

    def __init__(self, job: SalvageJob, contract: beam.PCollection, dataset: Dataset | None) -> None:
        super().__init__()
        self._job = job
        self._contract = contract
        self._dataset = dataset

    def expand(self, tasks: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        return (
            tasks
            | "SpreadOut" >> beam.Reshuffle()  # SalvageTask
            | "SaveShard"
            >> beam.ParDo(
                _SaveShard(self._job.decode), beam.pvalue.AsSingleton(self._contract)
            ).with_output_types(SavedShard)  # SavedShard
            | "GatherShards" >> beam.combiners.ToList()  # [SavedShard]
            | "Commit" >> beam.Map(_commit, self._job, self._dataset)
        )  # outcome


def _commit(saved: Sequence[SavedShard], job: SalvageJob, dataset: Dataset | None) -> dict[str, Any]:
    return commit_salvage(job, dataset, saved) if dataset else commit_files(job, saved)
