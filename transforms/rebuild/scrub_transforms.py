"""`ScrubShards`: reads a part of the latest version again, on all workers."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam

from shardwright.schemas.version import version_path
from shardwright.transforms.lease import renew
from shardwright.transforms.rebuild.begin import PreviousState
from shardwright.transforms.rebuild.scrub import chosen_shards, scrub_shard
from shardwright.transforms.rebuild.task import RebuildTask


class ScrubShards(beam.PTransform):
    """Reads a part of the latest version again. `PCollection[PreviousState] -> PCollection[tuple]`.

    Each output element has the fields of a `ScrubbedShard`.

    Args:
      task: The rebuild.
    """

    def __init__(self, task: RebuildTask) -> None:
        super().__init__()
        self._task = task

    def expand(self, previous: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        task = self._task

        def chosen(previous: PreviousState) -> Iterator[tuple[str, str, int, str]]:
            for shard in chosen_shards(task, previous):
                yield version_path(task.output, previous.version), shard.file, shard.bytes, shard.sha256

        def scrub(directory: str, file: str, size: int, sha256: str) -> tuple[str, int, str]:
            renew(task.output, task.holder)
            return file, size, scrub_shard(directory, file, sha256)

        return (
            previous
            | "ChooseShards" >> beam.FlatMap(chosen).with_output_types(tuple[str, str, int, str])  # a shard
            | "SpreadShards" >> beam.Reshuffle()  # the same
            | "ScrubShard"
            >> beam.MapTuple(scrub).with_output_types(tuple[str, int, str])  # file, bytes, damage
        )
