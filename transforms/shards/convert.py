"""Converts the images of one shard, in order, with bounded memory. Needs no Beam."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from shardwright.schemas.codes import Outcome, QuarantineReason, Stage
from shardwright.schemas.errors import EngineError, ImageFault, NotACandidate
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.layouts import Layout
from shardwright.schemas.ledger import Entry
from shardwright.schemas.settings import ConvertSettings
from shardwright.transforms.images.convert import convert_image
from shardwright.transforms.images.read import read_image
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.records.build import build_example
from shardwright.transforms.shards.pool import ByteBudget, map_ordered

#: Bytes of decoded pictures that the threads of a process may hold together.
WORKING_BYTES = 256 * 10**6
#: Finished images that may wait for a slow one before them, per thread.
_WAITING_PER_THREAD = 32
#: What is reserved for a source whose size is unknown.
_UNKNOWN_SIZE = 10**6

_LISTING_MESSAGES = {
    QuarantineReason.UNKNOWN_LABEL: "it lies in no class folder",
    QuarantineReason.UNREADABLE: "the symbolic link points nowhere",
}


@dataclass(frozen=True)
class ShardRecipe:
    """What every shard of a dataset is converted with.

    Attributes:
      settings: checked settings.
      layout: the record layout.
      ids: class name -> id.
    """

    settings: ConvertSettings
    layout: Layout
    ids: Mapping[str, int]


def convert_ref(ref: ImageRef, recipe: ShardRecipe, budget: ByteBudget | None = None) -> tuple[Entry, bytes]:
    """Converts one image.

    Returns:
      Its ledger entry (without offset) and its serialised Example, empty when it was left out.

    Raises:
      EngineError: if the storage or the machine failed, or the source changed.
    """
    if not ref.is_candidate:
        return _decided_entry(ref), b""
    sha256 = ref.sha256
    try:
        data = read_image(ref, recipe.settings.max_source_bytes)
        sha256 = hashlib.sha256(data).hexdigest()
        if ref.sha256 and ref.sha256 != sha256:
            raise EngineError(
                f"{printable(ref.uri)} changed while the job was reading its input; "
                "run again with --resume when nothing writes there."
            )
        if ref.label not in recipe.ids:
            raise ImageFault(
                QuarantineReason.UNKNOWN_LABEL,
                Stage.BUILD,
                f"its class {ref.label!r} is not among the class names",
            )
        try:
            image = convert_image(data, ref.key, recipe.settings, budget.reserve if budget else None)
        except MemoryError:
            raise _memory_fault(ref, budget) from None
        example = build_example(ref, image, sha256, recipe.layout, recipe.ids)
    except ImageFault as fault:
        entry = Entry(
            key=ref.key,
            outcome=Outcome.QUARANTINED,
            fingerprint=ref.fingerprint,
            sha256=sha256,
            label=ref.label,
            reason=fault.reason,
            stage=fault.stage,
            message=fault.message,
            uri=ref.uri,
        )
        return entry, b""
    except NotACandidate as filtered:
        return _left_out(ref, Outcome.FILTERED, filtered.reason), b""
    entry = Entry(
        key=ref.key,
        outcome=Outcome.WRITTEN,
        fingerprint=ref.fingerprint,
        sha256=sha256,
        label=ref.label,
        stored="kept" if image.kept else "encoded",
        animated=image.animated,
    )
    return entry, example


def _left_out(ref: ImageRef, outcome: str, reason: str) -> Entry:
    return Entry(key=ref.key, outcome=outcome, fingerprint=ref.fingerprint, reason=reason)


def _decided_entry(ref: ImageRef) -> Entry:
    """Returns the entry of a file whose outcome was known before it was read."""
    if ref.outcome != Outcome.QUARANTINED:
        return _left_out(ref, ref.outcome, ref.reason)
    return Entry(
        key=ref.key,
        outcome=ref.outcome,
        fingerprint=ref.fingerprint,
        label=ref.label,
        reason=ref.reason,
        stage=Stage.LIST,
        message=_LISTING_MESSAGES[QuarantineReason(ref.reason)],
        uri=ref.uri,
    )


def _memory_fault(ref: ImageRef, budget: ByteBudget | None) -> Exception:
    """Tells a file that asks for absurd memory from a machine that has none left.

    Any accepted picture fits into the working memory of a process; if that much can be had now,
    the decoder asked for more than the picture's size accounts for.
    """
    try:
        bytearray(WORKING_BYTES)
    except MemoryError:
        return EngineError(
            f"The machine ran out of memory at {printable(ref.uri)}; lower --max_pixels or use a "
            "larger machine, then run again with --resume."
        )
    return ImageFault(
        QuarantineReason.CORRUPT, Stage.DECODE, "it asks the decoder for more memory than its size"
    )


def convert_refs(
    refs: Sequence[ImageRef], recipe: ShardRecipe, executor: ThreadPoolExecutor, threads: int,
    budget: ByteBudget,
) -> Iterator[tuple[Entry, bytes]]:  # fmt: skip
    """Yields `convert_ref` of each reference, in order, worked on by the executor's threads."""

    def work(ref: ImageRef) -> tuple[Entry, bytes]:
        result = convert_ref(ref, recipe, budget)
        PROGRESS.add(images=ref.is_candidate, bad=result[0].outcome == Outcome.QUARANTINED)
        return result

    return map_ordered(
        work,
        refs,
        executor,
        weigh=lambda ref: ref.size if ref.size >= 0 else _UNKNOWN_SIZE,
        max_items=threads * _WAITING_PER_THREAD,
    )
