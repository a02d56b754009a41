"""`SalvageDataset`: turns damaged shards into a dataset of their sound records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import apache_beam as beam

from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.dataset_files import own_outcome
from shardwright.core.lease import HeldLease, given_back
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.salvage.commit import SalvageJob, commit_salvage
from shardwright.core.salvage.shard import SalvageTask, SavedShard, save_shard
from shardwright.core.shards.finish import condense
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.ledger import ShardResult
from shardwright.transforms.building_blocks import composite
from shardwright.transforms.commit import condensed

_RESULTS = "results"


def _save_shard(task: SalvageTask, schema: RecordSchema, decode: bool) -> Iterator[Any]:
    if task.hold is not None:
        task.hold.renew()
    saved = save_shard(task, schema, decode)
    PROGRESS.add(checked_records=saved.records, checked_shards=1, findings=len(saved.lost))
    if saved.result is not None:
        yield beam.pvalue.TaggedOutput(_RESULTS, saved.result)
    yield replace(saved, result=None)


@composite
def SalvageDataset(
    tasks: beam.PCollection,
    job: SalvageJob,
    schema: beam.PCollection,
    dataset: Dataset | None,
    hold: HeldLease | beam.pvalue.AsSingleton | None,
) -> beam.PCollection:
    """Saves every shard, then commits. `PCollection[SalvageTask] -> PCollection[outcome]`.

    Args:
      tasks: The shards to save.
      job: The salvage.
      schema: PCollection of the one record schema.
      dataset: Contents of `dataset.json`. None for foreign files.
      hold: The lease, or a side input of it. None if the run needs no lease.
    """
    saved = (
        tasks
        | "SpreadOut" >> beam.Reshuffle()  # SalvageTask
        | "SaveShard"
        >> beam.FlatMap(_save_shard, beam.pvalue.AsSingleton(schema), job.decode)
        .with_output_types(SavedShard)
        .with_outputs(_RESULTS, main="saved")
    )  # SavedShard, ShardResult
    return (
        tasks.pipeline
        | "Once" >> beam.Impulse()  # bytes
        | "Commit"
        >> beam.Map(_commit, beam.pvalue.AsIter(saved.saved), condensed(saved[_RESULTS]), job, dataset, hold)
    )  # outcome


def _commit(
    _: bytes,
    saved: Iterable[SavedShard],
    results: Iterable[ShardResult],
    job: SalvageJob,
    dataset: Dataset | None,
    hold: HeldLease | None,
) -> dict[str, Any]:
    job = replace(job, hold=hold)
    # An engine may run this step again, even after the lease was given back.
    if job.described and (ended := own_outcome(job.output, hold)):
        return ended
    by_file = {result.header.file: result for result in condense(results)}  # foreign files have none
    with given_back(hold if job.described else None):  # otherwise the launcher gives the lease back
        return commit_salvage(job, dataset, [replace(item, result=by_file.get(item.file)) for item in saved])
