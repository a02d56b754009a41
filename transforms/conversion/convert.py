"""Converts the images of one shard, in order, with bounded memory. Does not need Beam."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from PIL import Image

from shardwright.schemas.codes import FilterReason, Outcome, QuarantineReason, Stage
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, ImageFault, LeftOut, NotACandidate
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.key_rules import KeyRules
from shardwright.schemas.layouts import Layout
from shardwright.schemas.ledger import Entry
from shardwright.transforms.concurrency.pool import (
    IN_FLIGHT_BYTES,
    WORKING_BYTES,
    ByteBudget,
    OrderedMap,
    map_ordered,
)
from shardwright.transforms.concurrency.progress import PROGRESS
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.conversion.early_image import (
    EarlyImage,
    EarlyImages,
    SampledImages,
    sampled_images,
)
from shardwright.transforms.conversion.head_start import current_head_start
from shardwright.transforms.conversion.reusable import ReusableRecord
from shardwright.transforms.conversion.selection import check_quality, left_out_by_digest
from shardwright.transforms.images.annotate import (
    NOTHING,
    Annotated,
    annotate,
    has_annotations,
    needs_mask,
    read_mask,
)
from shardwright.transforms.images.boxes import upright_size
from shardwright.transforms.images.convert import ConvertedImage, Frame, Reserve, convert_image, map_image
from shardwright.transforms.images.decode import no_image
from shardwright.transforms.images.encode import FORMAT_NAMES
from shardwright.transforms.images.map_hook import Hook, MappedImage, call_hook, load_hook
from shardwright.transforms.images.mapped_refs import decoded_image, mapped_ref
from shardwright.transforms.images.private_metadata import private_metadata
from shardwright.transforms.images.read import check_sha256, expected_bytes, map_refs, read_image
from shardwright.transforms.records.build import build_example, check_labels
from shardwright.transforms.storage import changed, is_remote

#: Number of finished images per thread that may wait for a slower one before them.
_WAITING_PER_THREAD = 32
#: Largest number of bytes of a raw pixel (in base64), and of the pixels for each byte of a photograph.
_PIXEL_BYTES, _PIXELS_OF_A_BYTE = 4, 16
#: Largest number of bytes of a sample that keeps its type.
_SAMPLE_BYTES = 4
#: Value of `image/format` -> format of the stored image.
_KIND_OF_FORMAT = {name: kind for kind, name in FORMAT_NAMES.items()}


@dataclass(frozen=True)
class ShardRecipe:
    """The settings and class names with which all shards of a dataset are converted.

    Attributes:
      settings: checked settings.
      layout: the record layout.
      ids: class name -> id.
      texts: class name -> readable name, for classes named by a synset id.
      keys: rules of `--include` and `--exclude`.
    """

    settings: ConvertSettings
    layout: Layout
    ids: Mapping[str, int]
    texts: Mapping[str, str] = field(default_factory=dict)
    keys: KeyRules = field(default_factory=KeyRules)

    @property
    def hook(self) -> Hook | None:
        """The user's function for decoded images (`--map`), or None."""
        return load_hook(self.settings.map) if self.settings.map else None


@dataclass(frozen=True, slots=True)
class Converted:
    """The result of converting one image.

    Attributes:
      entry: its ledger entry, without the position of its record.
      example: its serialized Example; empty if the image was left out or its record copied.
      source_bytes: number of bytes read.
      decode_seconds: seconds that decoding took; None if the image was left out or its record copied.
      frame: the framed record from an earlier build; empty unless it was copied.
      on_background: whether a part of the picture shows the background color.
      early_seconds: processor time of its early conversion, which is not that of the shard.
      more: the other images that `--map` made of the same source, in order.
    """

    entry: Entry
    example: bytes = b""
    source_bytes: int = 0
    decode_seconds: float | None = None
    frame: bytes = b""
    on_background: bool = False
    early_seconds: float = 0.0
    more: tuple[Converted, ...] = ()

    @property
    def images(self) -> tuple[Converted, ...]:
        """All images that were made of the source."""
        return (self, *self.more)


@dataclass(frozen=True, slots=True)
class ReadImage:
    """The bytes of an image between the storage and the decoder.

    Attributes:
      ref: reference of the image.
      data: bytes of the image; empty if there are none, or if it is converted already.
      sha256: hex digest of the bytes.
      fault: why there are no bytes; None if there are.
      mask: bytes of its mask file, if it has one.
      mask_sha256: hex digest of the mask's bytes.
      done: result of an earlier build, if it is still valid.
      left_out: why a setting leaves the image out; None if it does not.
      early: the image that was made of it early; None if it is not converted yet.
    """

    ref: ImageRef
    data: bytes = b""
    sha256: str = ""
    fault: ImageFault | None = None
    mask: bytes | None = None
    mask_sha256: str = ""
    done: Converted | None = None
    left_out: LeftOut | None = None
    early: EarlyImage | None = None

    @property
    def source_bytes(self) -> int:
        """Number of bytes of the image."""
        return len(self.data) if self.early is None else self.early.source_bytes


def read_ref(
    ref: ImageRef,
    recipe: ShardRecipe,
    known: ReusableRecord | None = None,
    converted: EarlyImages | None = None,
) -> ReadImage:
    """Reads the bytes of one image, if they are needed.

    Args:
      ref: reference of the image.
      recipe: how the shard is converted.
      known: the record that an earlier build made of the image.
      converted: images that may be converted already; None if there are none.

    Raises:
      EngineError: if the storage or the machine failed, or the source changed.
    """
    if not ref.is_candidate:
        return ReadImage(ref)
    if ref.sha256:  # stated by the source, so the image need not be read to be left out
        left_out = left_out_by_digest(ref.key, ref.sha256, recipe.keys)
        if left_out is not None:
            return ReadImage(ref, sha256=ref.sha256, left_out=left_out)
    early = converted.take(ref) if converted is not None else None
    data = b""
    try:
        if early is None:
            with UNDERWAY.working_on(ref.location, "read"):
                data = read_image(ref, recipe.settings.max_source_bytes)
    except ImageFault as fault:
        if ref.annotations and isinstance(fault.__cause__, FileNotFoundError):
            fault = ImageFault(QuarantineReason.BAD_ANNOTATION, fault.stage, "its image is missing")
        return ReadImage(ref, sha256=ref.sha256, fault=fault)
    sha256 = hashlib.sha256(data).hexdigest() if early is None else early.sha256
    wrong: ImageFault | None = None
    try:
        check_sha256(ref, sha256)
    except ImageFault as fault:
        if recipe.settings.dedupe == "exact":  # wrong ones were quarantined earlier
            raise changed(ref.uri) from fault
        wrong = fault
    left_out = left_out_by_digest(ref.key, sha256, recipe.keys)
    if left_out is None and ref.size < 0 < len(data) < recipe.settings.min_source_bytes:
        left_out = LeftOut(FilterReason.MIN_BYTES, Stage.READ, f"it has {len(data):,} bytes")
    if left_out is not None or wrong is not None:
        return ReadImage(ref, sha256=sha256, fault=wrong, left_out=left_out)
    try:
        mask = read_mask(ref, recipe.settings)
    except ImageFault as fault:
        fault = ImageFault(fault.reason, Stage.READ, fault.message)
        return ReadImage(ref, sha256=sha256, fault=fault)
    mask_sha256 = "" if mask is None else hashlib.sha256(mask).hexdigest()
    read = ReadImage(ref, data, sha256, None, mask, mask_sha256, early=early)
    if known is not None and known.entry.outcome == Outcome.WRITTEN and has_bytes_of(read, known.entry):
        done = _as_before(ref, known, read.source_bytes)
        if done is not None:
            return ReadImage(ref, done=done)
    return read


def has_bytes_of(read: ReadImage, entry: Entry) -> bool:
    """Returns whether the bytes of an image and its mask match the digests in a ledger entry."""
    return (read.sha256, read.mask_sha256) == (entry.sha256, entry.mask_sha256)


def _as_before(ref: ImageRef, known: ReusableRecord, source_bytes: int = 0) -> Converted | None:
    """Returns the result of an earlier build for an image; None if its record is damaged."""
    entry = known.entry
    if entry.outcome != Outcome.WRITTEN:
        uri = ref.location if entry.uri else ""
        return Converted(entry._replace(uri=uri, fingerprint=_state_that_counts(ref)))
    frames = known.frames()
    if frames is None:
        return None
    first, *more = (
        Converted(entry._replace(fingerprint=ref.fingerprint), frame=frame) for entry, frame in frames
    )
    return replace(first, source_bytes=source_bytes, more=tuple(more))


def convert_read(
    read: ReadImage,
    recipe: ShardRecipe,
    budget: ByteBudget | None = None,
    sample: SampledImages | None = None,
) -> Converted:
    """Converts one image.

    Args:
      read: the bytes of the image.
      recipe: how the shard is converted.
      budget: limit for the pixels that the threads may hold.
      sample: keeps the image until its shard is written; None if it is converted for the shard.

    Raises:
      EngineError: if the machine failed.
    """
    ref = read.ref
    if read.done is not None:
        return read.done
    if not ref.is_candidate:
        return Converted(_decided_entry(ref))
    try:
        if read.left_out:
            raise read.left_out
        if read.fault:
            raise read.fault
        reserve = budget.reserve if budget else None
        try:
            if recipe.hook is not None:
                return _map(read, recipe, recipe.hook, reserve)
            check_labels(ref, recipe.layout, recipe.ids)
            with UNDERWAY.working_on(ref.location, "decode"):
                if read.early is not None:
                    image = read.early.image
                else:
                    start = time.thread_time()
                    image = convert_image(read.data, ref.key, recipe.settings, reserve)
                    if sample is not None:
                        seconds = time.thread_time() - start
                        sample.keep(ref, EarlyImage(read.sha256, len(read.data), seconds, image))
                check_quality(image, recipe.settings, reserve)
            annotated = NOTHING
            if has_annotations(recipe.layout):
                with UNDERWAY.working_on(ref.location, "annotate"):
                    annotated = annotate(ref, image, recipe.settings, recipe.ids, read.mask, reserve)
        except NotACandidate as left_out:
            if left_out.reason == FilterReason.SKIPPED_FORMAT:
                entry = _left_out(ref, Outcome.FILTERED, left_out.reason)
                # The stage shows that the file was read: its state belongs to the plan's digest.
                return Converted(entry._replace(stage=Stage.DECODE), source_bytes=read.source_bytes)
            # The source names it as an image: in a row of a manifest, an annotation, a record.
            raise no_image(read.data) from None
        except MemoryError:
            raise _memory_fault(ref) from None
        return _built(ref, read, image, annotated, recipe)
    except LeftOut as left_out:
        return Converted(_left_out_entry(read, left_out), source_bytes=read.source_bytes)
    except ImageFault as fault:
        entry = Entry(
            key=ref.key,
            outcome=Outcome.QUARANTINED,
            fingerprint=ref.fingerprint,
            sha256=read.sha256,
            label=ref.label,
            reason=fault.reason,
            stage=fault.stage,
            message=fault.message,
            uri=ref.location,
            mask_sha256=read.mask_sha256,
        )
        return Converted(entry, source_bytes=read.source_bytes)


def _built(
    ref: ImageRef, read: ReadImage, image: ConvertedImage, annotated: Annotated, recipe: ShardRecipe
) -> Converted:
    """Builds the record and the ledger entry of an image.

    Raises:
      ImageFault: if the layout cannot store it.
    """
    example = build_example(
        ref, image, read.sha256, recipe.layout, recipe.ids, annotated.values, recipe.texts
    )
    width, height = upright_size(image.frame)
    entry = Entry(
        key=ref.key,
        outcome=Outcome.WRITTEN,
        fingerprint=ref.fingerprint,
        sha256=read.sha256,
        label=ref.label if annotated.label is None else annotated.label,
        stored="kept" if image.kept else "encoded",
        format=image.format,
        animated=image.animated,
        boxes=annotated.counts,
        message=annotated.message,
        mask_sha256=read.mask_sha256,
        source_width=width,
        source_height=height,
        source_bytes=read.source_bytes,
        decoder_warning=image.warning,
        damaged=image.damaged,
        file_name=ref.file_name,
        fold=ref.fold if ref.fold >= 0 else None,
        private=_private(image),
        dtype=image.dtype if recipe.settings.states_dtype else "",
    )
    return Converted(
        entry,
        example,
        read.source_bytes,
        image.decode_seconds,
        on_background=image.on_background,
        early_seconds=read.early.processor_seconds if read.early is not None else 0.0,
    )


def _private(image: ConvertedImage) -> str:
    """Returns the kinds of private data in an image whose original bytes were kept, joined by commas."""
    if not image.kept:
        return ""
    return ",".join(private_metadata(image.encoded, _KIND_OF_FORMAT[image.format]))


def _map(read: ReadImage, recipe: ShardRecipe, hook: Hook, reserve: Reserve | None) -> Converted:
    """Converts the images that a hook makes of one image.

    Raises:
      ImageFault: if the image is faulty, the hook fails, or the layout cannot store what it returns.
      LeftOut: if the hook leaves the image out.
    """
    ref, settings = read.ref, recipe.settings
    mapped_images: list[Converted] = []

    def mapper(picture: Image.Image, frame: Frame) -> Iterator[MappedImage]:
        return call_hook(hook, decoded_image(ref, picture, frame), settings.max_pixels)

    with UNDERWAY.working_on(ref.location, "decode"):
        for mapped, image, fits in map_image(read.data, ref.key, settings, mapper, reserve):
            item = mapped_ref(ref, mapped, fits, settings)
            check_labels(item, recipe.layout, recipe.ids)
            # The reservation for the image, which is still held, covers its masks.
            annotated = annotate(item, image, settings, recipe.ids, read.mask)
            done = _built(item, read, image, annotated, recipe)
            if mapped_images:
                done = replace(done, source_bytes=0, decode_seconds=None)
            mapped_images.append(done)
    if len(mapped_images) > 1 or mapped_images[0].entry.key != ref.key:
        mapped_images = [
            replace(done, entry=done.entry._replace(source_key=ref.key)) for done in mapped_images
        ]
    first, *more = mapped_images
    return replace(first, more=tuple(more))


def convert_ref(ref: ImageRef, recipe: ShardRecipe, budget: ByteBudget | None = None) -> Converted:
    """Reads and converts one image.

    Raises:
      EngineError: if the storage or the machine failed, or the source changed.
    """
    read = read_ref(ref, recipe, converted=current_head_start(recipe.settings))
    return convert_read(read, recipe, budget)


def _left_out(ref: ImageRef, outcome: str, reason: str) -> Entry:
    return Entry(key=ref.key, outcome=outcome, fingerprint=_state_that_counts(ref), reason=reason)


def _state_that_counts(ref: ImageRef) -> str:
    """Returns the state of a source; none if its listing decided the outcome.

    The plan's digest leaves such a state out, so a shard that is reused could only have an earlier one.
    """
    return ref.fingerprint if ref.is_candidate else ""


def _left_out_entry(read: ReadImage, left_out: LeftOut) -> Entry:
    """Returns the ledger entry of an image that was read, and that a setting leaves out."""
    ref = read.ref
    width, height = left_out.size or (None, None)
    return Entry(
        key=ref.key,
        outcome=Outcome.FILTERED,
        fingerprint=ref.fingerprint,
        sha256=read.sha256,
        label=ref.label,
        reason=left_out.reason,
        stage=left_out.stage,
        message=left_out.message,
        mask_sha256=read.mask_sha256,
        source_width=width,
        source_height=height,
    )


def _decided_entry(ref: ImageRef) -> Entry:
    """Returns the ledger entry of a file whose outcome was known before reading it."""
    if ref.outcome != Outcome.QUARANTINED:
        return _left_out(ref, ref.outcome, ref.reason)
    return Entry(
        key=ref.key,
        outcome=ref.outcome,
        label=ref.label,
        reason=ref.reason,
        stage=Stage.LIST,
        message=ref.message,
        uri=ref.location,
    )


def _memory_fault(ref: ImageRef) -> Exception:
    """Distinguishes a file that needs absurd memory from a machine that has no memory left.

    Any accepted picture fits into the working memory of a process. If that much can be allocated now, the
    decoder asked for more than the size of the picture explains.
    """
    try:
        bytearray(WORKING_BYTES)
    except MemoryError:
        return EngineError(
            f"The machine ran out of memory at {printable(ref.uri)}; lower --max_pixels or use a "
            "larger machine, then run again with --resume."
        )
    return ImageFault(
        QuarantineReason.CORRUPT, Stage.DECODE, "decoding it takes more memory than its size explains"
    )


def remote_reads(
    refs: Sequence[ImageRef],
    recipe: ShardRecipe,
    executor: ThreadPoolExecutor,
    known: Mapping[str, ReusableRecord] | None = None,
) -> OrderedMap[ImageRef, ReadImage] | None:
    """Returns the reads of images for `convert_refs`, which may begin earlier; None if all are local.

    Args:
      refs: references of the shard.
      recipe: how the shard is converted.
      executor: the threads that convert; other ones read.
      known: key -> the record that an earlier build made of the image.
    """
    if not any(is_remote(ref.uri) for ref in refs):
        return None
    known = known or {}
    sample = sampled_images(recipe.settings)
    return map_refs(
        lambda ref: read_ref(ref, recipe, known.get(ref.key), sample),
        refs,
        executor,
        recipe.settings.max_source_bytes,
        max_weight=IN_FLIGHT_BYTES // 2,  # the other half may wait for the decoder
        with_masks=needs_mask(recipe.settings),
        is_unneeded=sample.has if sample is not None else lambda ref: False,
    )


def convert_refs(
    refs: Sequence[ImageRef], recipe: ShardRecipe, executor: ThreadPoolExecutor, threads: int,
    budget: ByteBudget, known: Mapping[str, ReusableRecord] | None = None,
    reads: OrderedMap[ImageRef, ReadImage] | None = None,
) -> Iterator[Converted]:  # fmt: skip
    """Converts references with the executor's threads, and yields the results in order.

    This thread copies unchanged records while the others convert later images, because handing over
    costs more than copying. The thread that decodes a local file also reads it. Remote files are read ahead,
    many at once, by separate threads.

    Args:
      refs: references of the shard.
      recipe: how the shard is converted.
      executor: the threads that convert.
      threads: number of these threads.
      budget: limit for the pixels that the threads may hold.
      known: key -> the record that an earlier build made of the image.
      reads: `remote_reads` of all references, if they may have started; only without `known`.
    """
    known = known or {}
    unchanged = {key: item for key, item in known.items() if item.unchanged}
    others = [ref for ref in refs if ref.key not in unchanged] if unchanged else refs
    converted = _convert_all(others, recipe, executor, threads, budget, known, reads)
    for ref in refs:
        if ref.key not in unchanged:
            yield next(converted)
            continue
        done = _as_before(ref, unchanged[ref.key]) or convert_ref(ref, recipe, budget)
        _note(done, ref)
        yield done


def _note(done: Converted, ref: ImageRef) -> None:
    PROGRESS.add(images=ref.is_candidate, bad=done.entry.outcome == Outcome.QUARANTINED)


def _convert_all(
    refs: Sequence[ImageRef], recipe: ShardRecipe, executor: ThreadPoolExecutor, threads: int,
    budget: ByteBudget, known: Mapping[str, ReusableRecord], reads: OrderedMap[ImageRef, ReadImage] | None,
) -> Iterator[Converted]:  # fmt: skip
    """Yields the result of each reference in order: converted, or copied if its bytes are unchanged."""

    def convert(read: ReadImage) -> Converted:
        done = convert_read(read, recipe, budget)
        _note(done, read.ref)
        return done

    def read_and_convert(chunk: list[ImageRef]) -> list[Converted]:
        # All images of a chunk are read first: the codecs clear the processor's caches, and code that runs
        # again at once takes a third of the time.
        reads = [read_ref(ref, recipe, known.get(ref.key), fork) for ref in chunk]
        return [convert(read) for read in reads]

    fork = current_head_start(recipe.settings)
    waiting = threads * _WAITING_PER_THREAD
    stored = _stored_bytes(recipe.settings)
    arriving = reads or remote_reads(refs, recipe, executor, known)
    if arriving is None:
        local = OrderedMap(
            read_and_convert,
            refs,
            executor,
            weigh=lambda ref: max(expected_bytes(ref), stored(expected_bytes(ref))),
            max_items=waiting,
        )
        return iter(local)
    return map_ordered(
        convert,
        arriving,
        executor,
        weigh=lambda read: max(len(read.data) + len(read.mask or b""), stored(len(read.data))),
        max_items=waiting,
        max_weight=IN_FLIGHT_BYTES // 2,
    )


def _stored_bytes(settings: ConvertSettings) -> Callable[[int], int]:
    """Estimates the bytes of a finished image from the size of its source.

    A converted image is mostly smaller than its source, except for raw pixels.
    """
    if settings.stored_format != "raw" and settings.depth == "8":
        return lambda size: 0
    pixel = _PIXEL_BYTES
    if settings.states_dtype:
        pixel = (settings.channels or 3) * (_SAMPLE_BYTES if settings.depth == "keep" else 1) * 4 // 3
    if settings.target:
        width, height = settings.target
        return lambda size: width * height * pixel
    # A kept original, or a file of many bytes per pixel, is not packed as much as a photograph.
    return lambda size: size * (_PIXELS_OF_A_BYTE if settings.stored_format == "raw" else 1)
