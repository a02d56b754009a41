"""`WritePlannedShards`: Beam's `WriteToTFRecord` for shards with planned content."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.metrics import Metrics
from apache_beam.utils.windowed_value import WindowedValue

from shardwright.core import storage
from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.concurrency.workers import usable_cpus
from shardwright.core.conversion import Converted, convert_ref, convert_refs
from shardwright.core.images.encode import HEIF_DECODER, codec_versions, decoder_versions
from shardwright.core.images.map_hook import hook_versions
from shardwright.core.lease import HeldLease
from shardwright.core.plan.assign import PlannedShard
from shardwright.core.records.framing import FRAME_BYTES
from shardwright.core.shards.finish import ShardPlace, finish_shard, removed_on_failure, write_ledger
from shardwright.core.shards.reuse import PreviousRecords, ReusableBuilds, take_over
from shardwright.core.shards.shard_plan import ShardPlan, plan_shard
from shardwright.core.sources.file_states import TouchedFiles
from shardwright.schemas.codes import METRICS_NAMESPACE, Outcome
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import NO_SPLIT
from shardwright.schemas.ledger import LedgerLines, ShardResult
from shardwright.schemas.plan import Forecast, shard_file
from shardwright.transforms.building_blocks import in_global_window
from shardwright.transforms.runners import uses_resource_hints

_COMPRESSION_TYPES = {
    "none": CompressionTypes.UNCOMPRESSED,
    "gzip": CompressionTypes.GZIP,
    "zlib": CompressionTypes.DEFLATE,
}

#: Memory of a machine that converts, as a hint for Dataflow Prime: a process takes up to 1 GB for photographs
#: of 24 megapixels, and Dataflow starts one for each processor.
_MIN_RAM = "4GB"
#: Number of bytes of records that are written at once.
_WRITE_BYTES = 1 << 18
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
        self._write = _WriteShard(self._sink, directory, settings, dict(versions), resume)
        self._side_inputs = (forecast, reusable or ReusableBuilds(), hold)

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        write = beam.ParDo(self._write, *self._side_inputs).with_output_types(ShardResult)
        if uses_resource_hints(shards.pipeline.options):
            write = write.with_resource_hints(min_ram=_MIN_RAM)
        return shards | "WriteShard" >> write  # ShardResult


@dataclass
class _Work:
    """The work done so far for a shard.

    Attributes:
      lines: Lines of its ledger.
      source_bytes: Number of source bytes of each image that was read.
      decode_us: Decoding time of each image in microseconds.
      copied: Number of records copied from an earlier build.
      on_background: Number of images that show the background color.
      rejected: Damaged shards of an earlier build, from which nothing was copied.
    """

    lines: LedgerLines = field(default_factory=LedgerLines)
    source_bytes: list[int] = field(default_factory=list)
    decode_us: list[int] = field(default_factory=list)
    copied: int = 0
    on_background: int = 0
    rejected: tuple[str, ...] = ()

    def add(self, image: Converted, digest: str, offset: int, length: int) -> None:
        """Adds an image and the place of its record, which has no length if the image was left out."""
        if length:
            self.lines.add(image.entry._replace(digest=digest, offset=offset, length=length))
        else:
            self.lines.add(image.entry._replace(digest=digest))
        self.copied += bool(image.frame)
        self.on_background += image.on_background
        if image.source_bytes:
            self.source_bytes.append(image.source_bytes)
        if image.decode_seconds is not None:
            self.decode_us.append(round(image.decode_seconds * 1e6))


class _WriteShard(beam.DoFn):
    """Writes one shard and its ledger."""

    def __init__(
        self,
        sink: Any,
        directory: str,
        settings: ConvertSettings,
        versions: Mapping[str, str],
        resume: bool,
    ) -> None:
        self._sink = sink
        self._directory = directory
        self._settings = settings
        self._versions = versions
        self._resume = resume

    def setup(self) -> None:
        _check_codec(self._versions, self._settings.map)
        # While one shard is hashed, moved and recorded, the images of the next one are converted already.
        self._at_once = max(_SHARDS_AT_ONCE, min(usable_cpus(), _MAX_SHARDS_AT_ONCE))
        self._executor = ThreadPoolExecutor(self._at_once, thread_name_prefix="shardwright-shard")
        self._verdicts: dict[str, bool] = {}  # for shards of the earlier build, during this run only

    def teardown(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)

    def start_bundle(self) -> None:
        self._shards: deque[Future[tuple[ShardResult, _Work]]] = deque()

    def process(
        self,
        planned: PlannedShard,
        forecast: Forecast,
        reusable: ReusableBuilds,
        hold: HeldLease | None,
    ) -> Iterator[ShardResult]:
        if hold is not None:
            hold.renew()  # once per shard, because no other process may be there to do it
        plan = plan_shard(planned, forecast, self._settings, self._versions)
        place = ShardPlace(*planned[:3])
        self._shards.append(self._executor.submit(self._reuse_or_write, place, plan, reusable, hold))
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

    def _reuse_or_write(
        self, place: ShardPlace, plan: ShardPlan, reusable: ReusableBuilds, hold: HeldLease | None
    ) -> tuple[ShardResult, _Work]:
        """Reuses a shard of an earlier build, or writes it; returns its result and the work done."""
        with storage.translated_errors("write a shard to", self._directory):
            reused = self._reuse(place, plan, reusable, hold)
            if reused is not None:
                PROGRESS.add(images=plan.digests.candidates, shards=bool(reused.header.file))
                return reused, _Work()
            if place.split == NO_SPLIT:  # files without their own key, which have no record and no shard
                lines = LedgerLines.of(convert_ref(ref, plan.recipe).entry for ref in plan.refs)
                header = dataclasses.replace(lines.header(*place), plan_digest=plan.digest)
                return write_ledger(self._directory, place, ShardResult(header), lines, hold), _Work()
            started = time.time()
            with self._previous_records(place, plan, reusable) as records:
                temporary, work = self._write_records(place, plan, records, hold)
            result = finish_shard(
                self._directory,
                place,
                shard_file(*place, self._settings.suffix),
                temporary,
                work.lines,
                plan.digest,
                plan.recipe_digest,
                started,
                hold,
            )
            PROGRESS.add(shards=1)
            return dataclasses.replace(result, copied=work.copied, rejected=work.rejected), work

    def _reuse(
        self, place: ShardPlace, plan: ShardPlan, reusable: ReusableBuilds, hold: HeldLease | None
    ) -> ShardResult | None:
        """Reuses a shard of an earlier build if plan, size and checksum match; returns its result or None."""
        take = partial(
            take_over, self._directory, place=place, digest=plan.digest, hold=hold, recipe=plan.recipe
        )
        if self._resume and (reused := take(self._directory)):
            return reused
        if place[:2] in reusable.content_changed:
            return None
        build = reusable.finished
        if build is not None and shard_file(*place, build.suffix) not in reusable.damaged:
            # Its sources were checked again if needed.
            reused = take(build.directory, final=False, digests=build.digests)
            if reused:
                return dataclasses.replace(reused, carried=True)
        trusted = reusable.trust_mtime and plan.digests.has_known_states
        for source, touched in reusable.unfinished if trusted else ():
            if reused := take(source, sources_are_same=partial(_none_is_touched, plan, touched)):
                return reused
        return None

    def _write_records(
        self, place: ShardPlace, plan: ShardPlan, records: PreviousRecords | None, hold: HeldLease | None
    ) -> tuple[str, _Work]:
        """Writes the records of a shard to a temporary file; returns its path and the work done."""
        name = shard_file(*place, self._settings.suffix)
        temporary = storage.temporary_path(self._directory, name, existing=hold is not None)
        with removed_on_failure(temporary):
            file = self._sink.open(temporary)
            try:
                return temporary, self._write_images(plan, records, file)
            finally:
                self._sink.close(file)

    def _write_images(self, plan: ShardPlan, records: PreviousRecords | None, file: Any) -> _Work:
        """Converts the images of a shard and writes their records, in order; returns the work done.

        Records are written in groups, because each write has to wait for the converting threads.
        """
        work, offset, written = _Work(), 0, 0
        frames: list[bytes] = []
        group = SimpleNamespace(write=frames.append)  # all that the sink needs of a file
        for refs, digests in plan.parts():
            reusable = records.find(list(zip(refs, digests, strict=True)), len(plan.refs)) if records else {}
            for converted, digest in zip(convert_refs(refs, plan.recipe, reusable), digests, strict=True):
                for image in (converted, *converted.more):
                    length = len(image.frame)
                    if image.frame:
                        frames.append(image.frame)
                    elif image.example:
                        self._sink.write_record(group, image.example)
                        length = len(image.example) + FRAME_BYTES
                    work.add(image, digest, offset, length)
                    offset += length
                    if offset - written >= _WRITE_BYTES:
                        file.write(b"".join(frames))
                        frames.clear()
                        written = offset
        file.write(b"".join(frames))
        work.rejected = tuple(records.rejected) if records else ()
        return work

    def _previous_records(
        self, place: ShardPlace, plan: ShardPlan, reusable: ReusableBuilds
    ) -> AbstractContextManager[PreviousRecords | None]:
        """Returns the records of the earlier build that this shard may copy; None without such a build."""
        build = reusable.finished
        if build is None:
            return nullcontext()
        self._verdicts.update(dict.fromkeys(reusable.damaged, False))
        trust = reusable.trust_mtime and place[:2] not in reusable.content_changed
        recipe, touched = plan.recipe, reusable.touched
        return PreviousRecords(build, place, plan.recipe_digest, trust, self._verdicts, recipe, touched)


def _none_is_touched(plan: ShardPlan, touched: TouchedFiles) -> bool:
    return not any(ref.is_candidate and touched.has(ref) for ref in plan.refs)


def _check_codec(recorded: Mapping[str, str], spec: str) -> None:
    """Checks that the codecs and the hook of this worker have the versions that `dataset.json` will state.

    Raises:
      EngineError: If a version differs.
    """
    heif = {HEIF_DECODER: decoder_versions().get(HEIF_DECODER, "")}
    for name, here in {**codec_versions(), **hook_versions(spec), **heif}.items():
        there = recorded.get(name, "" if name == HEIF_DECODER else here)
        if there != here:
            here, there = (number or "(not installed)" for number in (here, there))
            raise EngineError(
                f"A worker has {name} {here}, the launcher {there}: "
                "give both the same image or packages, then run again with --resume."
            )


def _count(result: ShardResult, work: _Work) -> None:
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
