"""Writes a shard: reuses that of an earlier build if it can stay, else converts its images in order."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

from shardwright.core import storage
from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.conversion import Converted, convert_ref, convert_refs
from shardwright.core.images.encode import HEIF_DECODER, codec_versions, decoder_versions
from shardwright.core.images.map_hook import hook_versions
from shardwright.core.lease import HeldLease
from shardwright.core.records.framing import FRAME_BYTES
from shardwright.core.shards.finish import finish_shard, write_ledger
from shardwright.core.shards.reuse import NO_BUILD, PreviousRecords, ReusableBuilds, reuse_shard
from shardwright.core.shards.shard_plan import ShardPlan
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import NO_SPLIT
from shardwright.schemas.ledger import LedgerLines, ShardResult
from shardwright.schemas.plan import shard_file

#: Number of bytes of records that are written at once.
_WRITE_BYTES = 1 << 18


class RecordSink(Protocol):
    """Opens the file of a shard, and frames records for it, as the sink of Beam's `WriteToTFRecord` does."""

    def open(self, temp_path: str) -> Any:
        """Opens a new file."""

    def write_record(self, file_handle: Any, value: bytes) -> None:
        """Writes a framed record to a file, which needs no other method than `write`."""

    def close(self, file_handle: Any) -> None:
        """Closes a file."""


@dataclass
class ShardWork:
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
        entry = image.entry._replace(digest=digest)
        self.lines.add(entry._replace(offset=offset, length=length) if length else entry)
        self.copied += bool(image.frame)
        self.on_background += image.on_background
        if image.source_bytes:
            self.source_bytes.append(image.source_bytes)
        if image.decode_seconds is not None:
            self.decode_us.append(round(image.decode_seconds * 1e6))


@dataclass(frozen=True)
class ShardWriter:
    """Writes the shards of a dataset; several threads may do so at once.

    Attributes:
      directory: Dataset directory.
      settings: Checked settings.
      sink: The sink of Beam's `WriteToTFRecord`, which opens the file of a shard and frames its records.
      resume: Whether to reuse shards whose ledger matches the plan and whose bytes match the ledger.
      verdicts: File -> whether a shard of the earlier build matches its sha256, if known in this run.
    """

    directory: str
    settings: ConvertSettings
    sink: RecordSink
    resume: bool = False
    verdicts: dict[str, bool] = field(default_factory=dict)

    def write(
        self, plan: ShardPlan, reusable: ReusableBuilds, hold: HeldLease | None = None
    ) -> tuple[ShardResult, ShardWork]:
        """Reuses a shard of an earlier build, or writes it; returns its result and the work done.

        Args:
          plan: The content of the shard, and how it is converted.
          reusable: Earlier builds.
          hold: Lease that must be held for each write; None if there is none.

        Raises:
          EngineError: If the storage or the machine failed, a source changed, or the lease was lost.
        """
        with storage.translated_errors("write a shard to", self.directory):
            place, reused = plan.place, self._reuse(plan, reusable, hold)
            if reused is not None:
                PROGRESS.add(images=plan.candidates, shards=bool(reused.header.file))
                return reused, ShardWork()
            if place.split == NO_SPLIT:  # files without their own key, which have no record and no shard
                lines = LedgerLines(convert_ref(ref, plan.recipe).entry for ref in plan.refs)
                header = replace(lines.header(place), plan_digest=plan.digest)
                return write_ledger(self.directory, ShardResult(header), lines, hold), ShardWork()
            started = time.time()
            file = shard_file(*place, self.settings.suffix)
            temporary = storage.temporary_path(self.directory, file, existing=hold is not None)
            work = self._write_records(temporary, plan, reusable)
            header = replace(
                work.lines.header(place), file=file, plan_digest=plan.digest, recipe=plan.recipe_digest
            )
            result = finish_shard(self.directory, header, temporary, work.lines, started, hold)
            PROGRESS.add(shards=1)
            return replace(result, copied=work.copied, rejected=work.rejected), work

    def _reuse(self, plan: ShardPlan, reusable: ReusableBuilds, hold: HeldLease | None) -> ShardResult | None:
        """Reuses a shard of an earlier build if plan, size and checksum match; returns its result or None."""
        take = partial(reuse_shard, self.directory, plan=plan, hold=hold)
        if self.resume and (reused := take(self.directory)):
            return reused
        if plan.place[:2] in reusable.content_changed:
            return None
        build = reusable.finished
        if build is not None and shard_file(*plan.place, build.suffix) not in reusable.damaged:
            # Its sources were checked again if needed.
            reused = take(build.directory, final=False, digests=build.digests)
            if reused:
                return replace(reused, carried=True)
        trusted = reusable.trust_mtime and plan.has_known_states
        for source, touched in reusable.unfinished if trusted else ():
            if reused := take(source, touched=touched):
                return reused
        return None

    def _write_records(self, temporary: str, plan: ShardPlan, reusable: ReusableBuilds) -> ShardWork:
        """Writes the records of a shard to a temporary file, which is removed if that fails."""
        build = reusable.finished or NO_BUILD
        self.verdicts.update(dict.fromkeys(reusable.damaged, False))
        trust = reusable.trust_mtime and plan.place[:2] not in reusable.content_changed
        previous = PreviousRecords(build, plan, trust, reusable.touched, self.verdicts)
        with storage.removed_on_failure(temporary), previous as records:
            opened = self.sink.open(temporary)
            try:
                return self._write_images(plan, records, opened)
            finally:
                self.sink.close(opened)

    def _write_images(self, plan: ShardPlan, records: PreviousRecords, file: Any) -> ShardWork:
        """Converts the images of a shard and writes their records, in order; returns the work done.

        Records are written in groups, because each write has to wait for the converting threads.
        """
        work, offset, written = ShardWork(), 0, 0
        frames: list[bytes] = []
        group = SimpleNamespace(write=frames.append)  # all that the sink needs of a file
        for refs, digests in plan.parts():
            reusable = records.find(zip(refs, digests, strict=True))
            for converted, digest in zip(convert_refs(refs, plan.recipe, reusable), digests, strict=True):
                for image in (converted, *converted.more):
                    length = len(image.frame)
                    if image.frame:
                        frames.append(image.frame)
                    elif image.example:
                        self.sink.write_record(group, image.example)
                        length = len(image.example) + FRAME_BYTES
                    work.add(image, digest, offset, length)
                    offset += length
                    if offset - written >= _WRITE_BYTES:
                        file.write(b"".join(frames))
                        frames.clear()
                        written = offset
        file.write(b"".join(frames))
        work.rejected = tuple(records.rejected)
        return work


def check_codecs(recorded: Mapping[str, str], hook: str) -> None:
    """Checks that the codecs and the hook of this worker have the versions that `dataset.json` will state.

    Args:
      recorded: Versions at the launcher by name.
      hook: The value of `--map`.

    Raises:
      EngineError: If a version differs.
    """
    heif = {HEIF_DECODER: decoder_versions().get(HEIF_DECODER, "")}
    for name, here in {**codec_versions(), **hook_versions(hook), **heif}.items():
        there = recorded.get(name, "" if name == HEIF_DECODER else here)
        if there != here:
            here, there = (number or "(not installed)" for number in (here, there))
            raise EngineError(
                f"A worker has {name} {here}, the launcher {there}: "
                "give both the same image or packages, then run again with --resume."
            )
