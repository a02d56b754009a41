"""`SalvageDataset`: turns damaged shards into a dataset of their sound records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.salvage.commit import SalvageJob, commit_salvage
from shardwright.core.salvage.shard import SalvageTask, SavedShard, save_shard
from shardwright.schemas.dataset import Dataset
from shardwright.transforms.building_blocks import CallOnce, composite
from shardwright.transforms.commit import CondenseResults

_RESULTS = "results"


def _save_shard(task: SalvageTask, schema: RecordSchema, decode: bool) -> Iterator[Any]:
    if task.hold is not None:
        task.hold.renew()
    saved, result = save_shard(task, schema, decode)
    PROGRESS.add(checked_records=saved.records, checked_shards=1, findings=len(saved.lost))
    if result is not None:
        yield beam.pvalue.TaggedOutput(_RESULTS, result)
    yield saved


@composite
def SalvageDataset(
    tasks: beam.PCollection[SalvageTask],
    job: SalvageJob,
    schema: beam.PCollection[RecordSchema],
    dataset: Dataset | None,
) -> beam.PCollection[dict[str, Any]]:
    """Saves every shard, then commits. `PCollection[SalvageTask] -> PCollection[outcome]`.

    Args:
      tasks: The shards to save.
      job: The salvage.
      schema: PCollection of the one record schema.
      dataset: Contents of `dataset.json`. None for foreign files.
    """
    saved = (
        tasks
        | "SpreadOut" >> beam.Reshuffle()  # SalvageTask
        | "SaveShard"
        >> beam.FlatMap(_save_shard, beam.pvalue.AsSingleton(schema), job.decode)
        .with_output_types(SavedShard)
        .with_outputs(_RESULTS, main="saved")
    )  # SavedShard, ShardResult
    results = saved[_RESULTS] | "CondenseResults" >> CondenseResults()  # ShardResult
    return tasks.pipeline | "Commit" >> CallOnce(
        commit_salvage, job, dataset, beam.pvalue.AsIter(saved.saved), beam.pvalue.AsIter(results)
    )  # outcome
