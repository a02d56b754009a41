"""`WritePlannedShards`: Beam's `WriteToTFRecord` for shards with planned content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.metrics import Metrics

from shardwright.core.concurrency.resources import usable_cpus
from shardwright.core.lease import HeldLease
from shardwright.core.plan.assign import PlannedShard
from shardwright.core.shards.reuse import ReusableBuilds
from shardwright.core.shards.shard_plan import plan_shard
from shardwright.core.shards.write import ShardWork, ShardWriter, check_codecs
from shardwright.schemas.codes import METRICS_NAMESPACE, Outcome
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import NO_SPLIT
from shardwright.schemas.ledger import ShardResult
from shardwright.schemas.plan import Forecast
from shardwright.transforms.building_blocks import InThreads
from shardwright.transforms.runner_features import uses_resource_hints

_COMPRESSION_TYPES = {
    "none": CompressionTypes.UNCOMPRESSED,
    "gzip": CompressionTypes.GZIP,
    "zlib": CompressionTypes.DEFLATE,
}

#: Memory of a machine that converts, as a hint for Dataflow Prime: a process takes up to 1 GB for photographs
#: of 24 megapixels, and Dataflow starts one for each processor.
_MIN_RAM = "4GB"
#: Least and largest number of shards that a worker writes, or compares with earlier builds, at once.
_SHARDS_AT_ONCE, _MAX_SHARDS_AT_ONCE = 2, 4


class WritePlannedShards(beam.io.WriteToTFRecord):
    """Writes each planned shard completely, in order, on one worker, and returns a result for it.

    `PCollection[PlannedShard] -> PCollection[ShardResult]`. Only references cross the stage
    boundary. The worker reads and converts the images of its shard, and writes them with the inherited
    sink into a temporary file. That file is then renamed or uploaded once. Beam's own finalisation is not
    used, because it can lose records when it is retried.

    Args:
      directory: Dataset directory.
      settings: Checked settings.
      versions: Versions of the software that determines bytes.
      forecast: PCollection of the one Forecast.
      resume: Whether to reuse shards whose ledger matches the plan and whose bytes match the ledger.
      reusable: PCollection of the one ReusableBuilds. None if there are no earlier builds.
      hold: Lease that must be held for each write, or a PCollection of it. None if there is none.
    """

    def __init__(
        self,
        directory: str,
        settings: ConvertSettings,
        versions: Mapping[str, str],
        forecast: beam.PCollection[Forecast],
        resume: bool = False,
        reusable: beam.PCollection[ReusableBuilds] | None = None,
        hold: HeldLease | beam.PCollection[HeldLease | None] | None = None,
    ) -> None:
        super().__init__(
            file_path_prefix=directory,
            coder=beam.coders.BytesCoder(),
            file_name_suffix=settings.suffix,
            compression_type=_COMPRESSION_TYPES[settings.compression],
        )
        self._write = _WriteShard(ShardWriter(directory, settings, self._sink, resume), dict(versions))
        self._side_inputs = (
            beam.pvalue.AsSingleton(forecast),
            ReusableBuilds() if reusable is None else beam.pvalue.AsSingleton(reusable),
            beam.pvalue.AsSingleton(hold) if isinstance(hold, beam.PCollection) else hold,
        )

    def expand(self, shards: beam.PCollection[PlannedShard]) -> beam.PCollection[ShardResult]:
        """Applies the transform."""
        write = beam.ParDo(self._write, *self._side_inputs).with_output_types(ShardResult)
        if uses_resource_hints(shards.pipeline.options):
            write = write.with_resource_hints(min_ram=_MIN_RAM)
        return shards | "WriteShard" >> write  # ShardResult


class _WriteShard(InThreads):
    """Writes one shard and its ledger."""

    def __init__(self, writer: ShardWriter, versions: Mapping[str, str]) -> None:
        self._writer = writer
        self._versions = versions

    def setup(self) -> None:
        check_codecs(self._versions, self._writer.settings.map)
        # While one shard is hashed, moved and recorded, the images of the next one are converted already.
        self.start_threads(max(_SHARDS_AT_ONCE, min(usable_cpus(), _MAX_SHARDS_AT_ONCE)))

    def process(
        self,
        planned: PlannedShard,
        forecast: Forecast,
        reusable: ReusableBuilds,
        hold: HeldLease | None,
    ) -> Iterator[ShardResult]:
        if hold is not None:
            hold.renew()  # once per shard, because no other process may be there to do it
        plan = plan_shard(planned, forecast, self._writer.settings, self._versions)
        yield from self.submit(self._writer.write, plan, reusable, hold)

    def outputs(self, result: tuple[ShardResult, ShardWork]) -> Iterator[ShardResult]:
        _count(*result)
        yield result[0]


def _count(result: ShardResult, work: ShardWork) -> None:
    """Adds a shard to the metrics of the job."""
    counter = partial(Metrics.counter, METRICS_NAMESPACE)
    distribution = partial(Metrics.distribution, METRICS_NAMESPACE)
    header = result.header
    for outcome, count in header.counts.items():
        counter(f"files_{outcome}").inc(count)
    for reason, count in header.reasons.get(Outcome.QUARANTINED, {}).items():
        counter(f"quarantined_{reason}").inc(count)
    if header.split != NO_SPLIT:
        counter(f"records_{header.split}").inc(header.records)
    counter("images_read").inc(len(work.source_bytes))
    counter("images_on_background").inc(work.on_background)
    counter("bytes_read").inc(sum(work.source_bytes))
    counter("bytes_written").inc(0 if result.reused else header.bytes)
    for values, name in ((work.source_bytes, "source_bytes"), (work.decode_us, "decode_us")):
        update = distribution(name).update
        for value in values:
            update(value)
