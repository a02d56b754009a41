"""`WritePlannedShards`: Beam's `WriteToTFRecord` for shards with planned content."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.metrics import Metrics
from apache_beam.utils.windowed_value import WindowedValue

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
from shardwright.transforms.building_blocks import in_global_window
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
      forecast: Side input with the labels of the plan.
      resume: Whether to reuse shards whose ledger matches the plan and whose bytes match the ledger.
      reusable: Side input with one `ReusableBuilds`; None if there are no earlier builds.
      hold: Lease that must be held for each write, or a side input of it; None if there is none.
    """

    def __init__(
        self,
        directory: str,
        settings: ConvertSettings,
        versions: Mapping[str, str],
        forecast: beam.pvalue.AsSingleton,
        resume: bool = False,
        reusable: beam.pvalue.AsSingleton | None = None,
        hold: HeldLease | beam.pvalue.AsSingleton | None = None,
    ) -> None:
        super().__init__(
            file_path_prefix=directory,
            coder=beam.coders.BytesCoder(),
            file_name_suffix=settings.suffix,
            compression_type=_COMPRESSION_TYPES[settings.compression],
        )
        self._write = _WriteShard(ShardWriter(directory, settings, self._sink, resume), dict(versions))
        self._side_inputs = (forecast, reusable or ReusableBuilds(), hold)

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        write = beam.ParDo(self._write, *self._side_inputs).with_output_types(ShardResult)
        if uses_resource_hints(shards.pipeline.options):
            write = write.with_resource_hints(min_ram=_MIN_RAM)
        return shards | "WriteShard" >> write  # ShardResult


class _WriteShard(beam.DoFn):
    """Writes one shard and its ledger."""

    def __init__(self, writer: ShardWriter, versions: Mapping[str, str]) -> None:
        self._writer = writer
        self._versions = versions

    def setup(self) -> None:
        check_codecs(self._versions, self._writer.settings.map)
        # While one shard is hashed, moved and recorded, the images of the next one are converted already.
        self._at_once = max(_SHARDS_AT_ONCE, min(usable_cpus(), _MAX_SHARDS_AT_ONCE))
        self._executor = ThreadPoolExecutor(self._at_once, thread_name_prefix="shardwright-shard")

    def teardown(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    def start_bundle(self) -> None:
        self._shards: deque[Future[tuple[ShardResult, ShardWork]]] = deque()

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
        self._shards.append(self._executor.submit(self._writer.write, plan, reusable, hold))
        if len(self._shards) > self._at_once:
            yield self._next_result()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        while self._shards:
            yield in_global_window(self._next_result())

    def _next_result(self) -> ShardResult:
        """Waits for the oldest shard, and returns its result."""
        result, work = self._shards.popleft().result()
        _count(result, work)  # Beam accepts metrics only from the bundle's thread
        return result


def _count(result: ShardResult, work: ShardWork) -> None:
    """Adds a shard to the metrics of the job; Beam accepts them only from the bundle's thread."""
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
    counter("bytes_written").inc(header.bytes)
    for values, name in ((work.source_bytes, "source_bytes"), (work.decode_us, "decode_us")):
        update = distribution(name).update
        for value in values:
            update(value)
