"""`WritePlannedShards`: Beam's `WriteToTFRecord` for shards whose contents were planned."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.metrics import Metrics
from apache_beam.utils.windowed_value import WindowedValue

from shardwright.schemas.codes import Outcome
from shardwright.schemas.dataset import ENTRANCES
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import NO_SPLIT, ImageRef, decode_refs
from shardwright.schemas.ledger import (
    Entry,
    ShardResult,
    dump_ledger,
    load_ledger,
    plan_digest,
)
from shardwright.schemas.metrics import NAMESPACE
from shardwright.schemas.plan import Forecast, ledger_file, shard_file
from shardwright.schemas.settings import ConvertSettings
from shardwright.transforms import storage
from shardwright.transforms.images.decode import limit_pixels
from shardwright.transforms.images.encode import codec_versions
from shardwright.transforms.plan.assign import shard_order
from shardwright.transforms.plan.transforms import PlannedShard, in_global_window
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.records.build import label_ids
from shardwright.transforms.records.framing import FRAME_BYTES
from shardwright.transforms.shards.convert import Converted, ShardRecipe, convert_ref, convert_refs
from shardwright.transforms.shards.finish import ShardPlace, discard, finish_shard, result_of, write_index
from shardwright.transforms.shards.pool import converting_executor, working_budget
from shardwright.transforms.workers import worker_threads

_COMPRESSION_TYPES = {
    "none": CompressionTypes.UNCOMPRESSED,
    "gzip": CompressionTypes.GZIP,
    "zlib": CompressionTypes.DEFLATE,
}
#: Settings that decide the bytes inside a shard, given its references.
_SHARD_SETTINGS = (
    "layout", "seed", "compression", "resize", "fit", "resample", "image_format", "quality",
    "color", "background", "strip_metadata", "max_pixels", "max_bytes", "bad_boxes", "extra_columns",
    "label_separator", "unlabelled",
)  # fmt: skip


class WritePlannedShards(beam.io.WriteToTFRecord):
    """Writes each planned shard whole, in order, on one worker, and reports what it wrote.

    `PCollection[PlannedShard] -> PCollection[ShardResult]`. Only references cross the stage
    boundary: the worker reads, converts and frames the images of its shard with the inherited
    sink, into a temporary file that is then renamed or uploaded once. Beam's own finalisation,
    which can lose records when it is retried, is not used.

    Args:
      directory: the dataset directory.
      settings: checked settings.
      versions: the software versions that decide bytes.
      forecast: side input with the plan's labels.
      resume: take over shards whose ledger agrees with the plan and whose bytes with the ledger.
    """

    def __init__(
        self,
        directory: str,
        settings: ConvertSettings,
        versions: Mapping[str, str],
        forecast: beam.pvalue.AsSingleton,
        resume: bool = False,
    ) -> None:
        super().__init__(
            file_path_prefix=directory,
            coder=beam.coders.BytesCoder(),
            file_name_suffix=settings.suffix,
            compression_type=_COMPRESSION_TYPES[settings.compression],
        )
        self._directory = directory
        self._settings = settings
        self._versions = dict(versions)
        self._forecast = forecast
        self._resume = resume

    def expand(self, shards: beam.PCollection) -> beam.PCollection:
        """Applies the transform."""
        return shards | "WriteShard" >> beam.ParDo(
            _WriteShard(self._sink, self._directory, self._settings, self._versions, self._resume),
            self._forecast,
        ).with_output_types(ShardResult)  # ShardResult


@dataclass
class _Work:
    """What writing a shard has done so far.

    Attributes:
      entries: its ledger.
      source_bytes: of each image read.
      decode_us: microseconds that decoding each image took.
    """

    entries: list[Entry] = field(default_factory=list)
    source_bytes: list[int] = field(default_factory=list)
    decode_us: list[int] = field(default_factory=list)

    def add(self, image: Converted, entry: Entry) -> None:
        self.entries.append(entry)
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
        _check_codec(self._versions)
        limit_pixels(self._settings.max_pixels)
        self._finisher = ThreadPoolExecutor(1, thread_name_prefix="shardwright-finish")

    def teardown(self) -> None:
        self._finisher.shutdown(wait=True)

    def start_bundle(self) -> None:
        self._finishing: Future[tuple[ShardResult, _Work]] | None = None

    def process(self, planned: PlannedShard, forecast: Forecast) -> Iterator[ShardResult]:
        layout = self._settings.record_layout
        ids = label_ids(forecast.plan.labels, layout.first_label)
        refs = sorted(
            (ref for batch in planned.refs for ref in decode_refs(batch)),
            key=lambda ref: shard_order(self._settings.seed, ref.key),
        )
        if planned.split == NO_SPLIT:
            result = self._book(planned, refs, ShardRecipe(self._settings, layout, ids))
            _count(result, _Work())
            yield result
            return
        texts = forecast.plan.text_of
        digest = shard_digest(refs, self._settings, ids, self._versions, texts)
        taken_over = self._take_over(planned, digest) if self._resume else None
        if taken_over is not None:
            PROGRESS.add(images=sum(ref.is_candidate for ref in refs), shards=1)
            yield taken_over
            return
        started = time.time()
        recipe = ShardRecipe(self._settings, layout, ids, texts)
        with self._faults():
            if self._resume:  # what was committed once does not stand beside what is redone
                for file in ENTRANCES:
                    storage.remove(storage.join(self._directory, file))
            temporary, work = self._write_records(planned, refs, recipe)
        # One shard is hashed, moved and booked while the images of the next are converted.
        yield from self._finished()
        self._finishing = self._finisher.submit(self._finish, planned, digest, temporary, work, started)

    def _book(self, planned: PlannedShard, refs: list[ImageRef], recipe: ShardRecipe) -> ShardResult:
        """Writes the ledger of what has no key of its own, and so no record and no shard."""
        entries = [convert_ref(ref, recipe).entry for ref in refs]
        result = result_of(ShardPlace(*planned[:3]), entries)
        with self._faults():
            ledger = storage.join(self._directory, ledger_file(*planned[:3]))
            storage.write_bytes(ledger, dump_ledger(result, entries))
        return result

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for result in self._finished():
            yield in_global_window(result)

    def _faults(self) -> AbstractContextManager[None]:
        return storage.faults("write a shard to", self._directory)

    def _finished(self) -> Iterator[ShardResult]:
        """Yields the result of the shard that is being finished, if there is one."""
        if self._finishing is not None:
            finishing, self._finishing = self._finishing, None
            with self._faults():
                result, work = finishing.result()
            _count(result, work)
            PROGRESS.add(shards=1)
            yield result

    def _take_over(self, planned: PlannedShard, digest: str) -> ShardResult | None:
        """Returns the result of an earlier run if plan, size and checksum all agree."""
        try:
            ledger = storage.read_bytes(storage.join(self._directory, ledger_file(*planned[:3])))
            result, lines = load_ledger(ledger)
            if result.plan_digest != digest:
                return None
            path = storage.join(self._directory, result.file)
            with storage.open_local(path) as file:
                if os.fstat(file.fileno()).st_size != result.bytes:
                    return None
                if storage.sha256_of(file) != result.sha256:
                    return None
            entries = list(lines)
            bad = tuple(entry for entry in entries if entry.outcome == Outcome.QUARANTINED)
        except (OSError, ValueError, TypeError):
            return None
        with self._faults():
            write_index(self._directory, ShardPlace(*planned[:3]), result.file, entries, keep=True)
        return dataclasses.replace(result, quarantine=bad, reused=True)

    def _write_records(
        self, planned: PlannedShard, refs: list[ImageRef], recipe: ShardRecipe
    ) -> tuple[str, _Work]:
        """Writes the shard's records to a temporary file; returns its path and what was done."""
        name = shard_file(*planned[:3], self._settings.suffix)
        temporary = storage.temporary_path(self._directory, name)
        work = _Work()
        try:
            handle = self._sink.open(temporary)
            try:
                offset = 0
                for image in convert_refs(
                    refs, recipe, converting_executor(), worker_threads(), working_budget()
                ):
                    entry = image.entry
                    if image.example:
                        self._sink.write_record(handle, image.example)
                        length = len(image.example) + FRAME_BYTES
                        entry = entry._replace(offset=offset, length=length)
                        offset += length
                    work.add(image, entry)
            finally:
                self._sink.close(handle)
        except BaseException:
            discard(temporary)
            raise
        return temporary, work

    def _finish(
        self,
        planned: PlannedShard,
        digest: str,
        temporary: str,
        work: _Work,
        started: float,
    ) -> tuple[ShardResult, _Work]:
        """Moves a written shard to its place, and books it."""
        place = ShardPlace(*planned[:3])
        name = shard_file(*place, self._settings.suffix)
        result = finish_shard(self._directory, place, name, temporary, work.entries, digest, started)
        return result, work


def _check_codec(recorded: Mapping[str, str]) -> None:
    """Checks that this worker decodes and encodes with what `dataset.json` is going to name.

    Raises:
      EngineError: if it does not.
    """
    for name, here in codec_versions().items():
        if recorded.get(name, here) != here:
            raise EngineError(
                f"A worker has {name} {here}, the launcher {recorded[name]}: give both the same image or "
                "packages, then run again with --resume."
            )


def shard_digest(
    refs: list[ImageRef],
    settings: ConvertSettings,
    ids: Mapping[str, int],
    versions: Mapping[str, str],
    texts: Mapping[str, str] | None = None,
) -> str:
    """Returns the digest of all that decides the bytes of a shard with these references."""
    identity = settings.identity()
    said = {name: texts[name] for ref in refs for name in ref.labels if name in texts} if texts else {}
    return plan_digest(
        ((ref, [ids.get(name, -1) for name in ref.labels]) for ref in refs),
        {name: identity[name] for name in _SHARD_SETTINGS} | ({"texts": said} if said else {}),
        versions,
    )


def _count(result: ShardResult, work: _Work) -> None:
    """Adds a shard to the job's metrics; Beam takes them from the thread of the bundle only."""
    counter, distribution = partial(Metrics.counter, NAMESPACE), partial(Metrics.distribution, NAMESPACE)
    for outcome, count in result.counts.items():
        counter(f"files_{outcome}").inc(count)
    for reason, count in result.reasons.get(Outcome.QUARANTINED, {}).items():
        counter(f"quarantined_{reason}").inc(count)
    if result.split != NO_SPLIT:
        counter(f"records_{result.split}").inc(result.records)
    counter("images_read").inc(len(work.source_bytes))
    counter("bytes_read").inc(sum(work.source_bytes))
    counter("bytes_written").inc(result.bytes)
    for values, name in ((work.source_bytes, "source_bytes"), (work.decode_us, "decode_us")):
        update = distribution(name).update
        for value in values:
            update(value)
