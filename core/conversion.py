"""Converts images to records: one, or all of a shard in order and with bounded memory."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import NamedTuple, TypeVar

from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.concurrency.thread_pool import IN_FLIGHT_BYTES, WORKING_BYTES, reserve_working_bytes
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.concurrency.worker_pool import current_pool
from shardwright.core.images import convert
from shardwright.core.images.annotate import Annotated, annotate, read_mask
from shardwright.core.images.boxes import upright_size
from shardwright.core.images.decode import no_image
from shardwright.core.images.map_hook import load_hook, mapped_ref
from shardwright.core.images.metadata import private_metadata
from shardwright.core.images.read import check_sha256, expected_bytes, map_refs, read_image
from shardwright.core.records.build import build_example, check_labels
from shardwright.core.records.framing import FRAME_BYTES
from shardwright.core.storage import changed, is_remote
from shardwright.schemas.byte_range import BARE_PIXELS, decode_place
from shardwright.schemas.codes import FilterReason, Outcome, QuarantineReason, Stage
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, ImageFault, LeftOut, NotACandidate
from shardwright.schemas.image_formats import FORMAT_NAMES
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.key_rules import KeyRules
from shardwright.schemas.layouts import Layout
from shardwright.schemas.ledger import Entry

Result = TypeVar("Result")

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
      settings: Checked settings.
      layout: The record layout.
      ids: Class name -> id.
      texts: Class name -> readable name, for classes named by a synset id.
      keys: Rules of `--include` and `--exclude`.
    """

    settings: ConvertSettings
    layout: Layout
    ids: Mapping[str, int]
    texts: Mapping[str, str] = field(default_factory=dict)
    keys: KeyRules = field(default_factory=KeyRules)


class Converted(NamedTuple):
    """The result of converting one image.

    Attributes:
      entry: Its ledger entry, without the position of its record.
      example: Its serialized Example; empty if the image was left out or its record copied.
      source_bytes: Number of bytes read.
      decode_seconds: Seconds that decoding took; None if the image was left out or its record copied.
      frame: The framed record from an earlier build; empty unless it was copied.
      on_background: Whether a part of the picture shows the background color.
      more: The other images that `--map` made of the same source, in order.
    """

    entry: Entry
    example: bytes = b""
    source_bytes: int = 0
    decode_seconds: float | None = None
    frame: bytes = b""
    on_background: bool = False
    more: tuple[Converted, ...] = ()


class ReadImage(NamedTuple):
    """The bytes of an image between the storage and the decoder.

    Attributes:
      ref: Reference of the image.
      data: Bytes of the image; empty if there are none, or if they are not needed.
      sha256: Hex digest of the bytes.
      problem: Why there are no bytes, or which setting leaves the image out; None if it can be converted.
      mask: Bytes of its mask file, if it has one.
      mask_sha256: Hex digest of the mask's bytes.
      size: Number of bytes that were read.
      same: Whether an earlier build converted the same bytes.
    """

    ref: ImageRef
    data: bytes = b""
    sha256: str = ""
    problem: ImageFault | LeftOut | None = None
    mask: bytes | None = None
    mask_sha256: str = ""
    size: int = 0
    same: bool = False


#: Hex digests of the bytes from which an earlier build made a record: of the image, and of its mask (empty
#: without one).
SourceDigests = tuple[str, str]


class ReusableRecord(NamedTuple):
    """The record that an earlier build made of an image from the same reference.

    Attributes:
      entry: The image's ledger entry.
      unchanged: Whether the source still has the same state.
      read_frame: Returns the frame of a record from its offset and its length in the uncompressed shard, in
        bytes; None if it is damaged.
      more: Entries of the other images that `--map` made of the source, in order.
    """

    entry: Entry
    unchanged: bool
    read_frame: Callable[[int, int], bytes | None]
    more: tuple[Entry, ...] = ()


def read_ref(ref: ImageRef, recipe: ShardRecipe, before: SourceDigests | None = None) -> ReadImage:
    """Reads the bytes of one image, if they are needed.

    Args:
      ref: Reference of the image.
      recipe: How the shard is converted.
      before: Digests of the bytes that an earlier build converted.

    Raises:
      EngineError: If the storage or the machine failed, or the source changed.
    """
    if not ref.is_candidate:
        return ReadImage(ref)
    settings, keys = recipe.settings, recipe.keys
    if ref.sha256 and keys.need_bytes:  # stated by the source, so the image need not be read
        left_out = _left_out_by_digest(ref.key, ref.sha256, keys)
        if left_out is not None:
            return ReadImage(ref, sha256=ref.sha256, problem=left_out)
    try:
        with UNDERWAY.working_on(ref.location, "read"):
            data = read_image(ref, settings.max_source_bytes)
    except ImageFault as fault:
        if ref.annotations and isinstance(fault.__cause__, FileNotFoundError):
            fault = ImageFault(QuarantineReason.BAD_ANNOTATION, fault.stage, "its image is missing")
        return ReadImage(ref, sha256=ref.sha256, problem=fault)
    sha256 = hashlib.sha256(data).hexdigest()
    problem: ImageFault | LeftOut | None = None
    try:
        check_sha256(ref, sha256)
    except ImageFault as fault:
        if settings.dedupe == "exact":  # wrong ones were quarantined earlier
            raise changed(ref.uri) from fault
        problem = fault
    left_out = _left_out_by_digest(ref.key, sha256, keys) if keys.need_bytes else None
    if left_out is None and ref.size < 0 < len(data) < settings.min_source_bytes:
        left_out = LeftOut(FilterReason.MIN_BYTES, Stage.READ, f"it has {len(data):,} bytes")
    if left_out or problem:
        return ReadImage(ref, sha256=sha256, problem=left_out or problem)
    mask, mask_sha256 = None, ""
    if ref.annotations:
        try:
            mask = read_mask(ref, settings)
        except ImageFault as fault:
            problem = ImageFault(fault.reason, Stage.READ, fault.message)
            return ReadImage(ref, sha256=sha256, problem=problem)
        mask_sha256 = "" if mask is None else hashlib.sha256(mask).hexdigest()
    if before == (sha256, mask_sha256):
        return ReadImage(ref, size=len(data), same=True)
    return ReadImage(ref, data, sha256, None, mask, mask_sha256, len(data))


def _left_out_by_digest(key: str, sha256: str, keys: KeyRules) -> LeftOut | None:
    """Returns why the digest of an image's bytes leaves it out; None if it does not."""
    reason = keys.reason_by_bytes(key, sha256)
    if reason is None:
        return None
    excluded = reason is FilterReason.EXCLUDED
    message = "--exclude lists its sha256" if excluded else "--include lists neither its key nor its sha256"
    return LeftOut(reason, Stage.READ, message)


def _as_before(ref: ImageRef, record: ReusableRecord, source_bytes: int = 0) -> Converted | None:
    """Returns the result of an earlier build for an image; None if its record is damaged."""
    if record.entry.outcome != Outcome.WRITTEN:
        uri = ref.location if record.entry.uri else ""
        return Converted(record.entry._replace(uri=uri, fingerprint=ref.fingerprint))
    copies = []
    for entry in (record.entry, *record.more):
        if entry.offset is None or entry.length is None:
            return None
        frame = record.read_frame(entry.offset, entry.length)
        if frame is None:
            return None
        copies.append(Converted(entry._replace(fingerprint=ref.fingerprint), frame=frame))
    return copies[0]._replace(source_bytes=source_bytes, more=tuple(copies[1:]))


def convert_read(read: ReadImage, recipe: ShardRecipe) -> Converted:
    """Converts one image whose bytes are read.

    Raises:
      EngineError: If the machine failed.
    """
    ref = read.ref
    if not ref.is_candidate:
        return Converted(decided_entry(ref))
    try:
        if read.problem:
            raise read.problem
        return _convert_candidate(read, recipe)
    except (ImageFault, LeftOut) as problem:
        entry = entry_of_problem(ref, problem, read.sha256)
        return Converted(entry._replace(mask_sha256=read.mask_sha256), source_bytes=read.size)


def entry_of_problem(ref: ImageRef, problem: ImageFault | LeftOut, sha256: str) -> Entry:
    """Returns the ledger entry of an image that is faulty, or that a setting leaves out.

    Args:
      ref: Reference of the image.
      problem: Why it is not written.
      sha256: Hex digest of its bytes; empty if they were not read.
    """
    width, height = problem.size or (None, None)
    is_fault = isinstance(problem, ImageFault)
    return Entry(
        key=ref.key,
        outcome=Outcome.QUARANTINED if is_fault else Outcome.FILTERED,
        fingerprint=ref.fingerprint,
        sha256=sha256,
        label=ref.label,
        reason=problem.reason,
        stage=problem.stage,
        message=problem.message,
        uri=ref.location if is_fault else "",
        source_width=width,
        source_height=height,
    )


def decided_entry(ref: ImageRef) -> Entry:
    """Returns the ledger entry of a file whose outcome was known before reading it.

    It has no state of the source. The plan's digest leaves it out, so a shard that is reused could only have
    an earlier one.
    """
    entry = Entry(key=ref.key, outcome=ref.outcome, reason=ref.reason)
    if ref.outcome != Outcome.QUARANTINED:
        return entry
    return entry._replace(label=ref.label, stage=Stage.LIST, message=ref.message, uri=ref.location)


def _convert_candidate(read: ReadImage, recipe: ShardRecipe) -> Converted:
    """Decodes, transforms, encodes and annotates an image, and builds its record.

    Raises:
      ImageFault: If the image is faulty, or the layout cannot store it.
      LeftOut: If a setting leaves it out.
      EngineError: If the machine failed.
    """
    ref, settings = read.ref, recipe.settings
    try:
        if settings.map:
            return _map_candidate(read, recipe)
        check_labels(ref, settings, recipe.ids)
        with UNDERWAY.working_on(ref.location, "decode"):
            image = convert.convert_image(read.data, ref.key, settings)
            if settings.drop:
                check_quality(image, settings)
        annotated = Annotated()
        if recipe.layout.stores_annotations:
            with UNDERWAY.working_on(ref.location, "annotate"):
                annotated = annotate(ref, image, settings, recipe.ids, read.mask)
    except NotACandidate:
        # The source names it as an image: in a row of a manifest, an annotation, a record.
        raise no_image(read.data) from None
    except MemoryError:
        raise _memory_fault(ref) from None
    return _build(ref, read, image, annotated, recipe)


def check_quality(image: convert.ConvertedImage, settings: ConvertSettings) -> None:
    """Checks whether an image, as it would be stored, has a finding that `--drop` names.

    The stored bytes are decoded, so that `validate --quality` finds the same images.

    Args:
      image: The converted image.
      settings: Checked settings.

    Raises:
      LeftOut: If it has one.
      ImageFault: If it cannot be measured.
    """
    from shardwright.core.images import quality_metrics  # other conversions start without it

    working = image.width * image.height * convert.BYTES_PER_PIXEL
    with convert.transform_faults(image.format, Stage.ENCODE), reserve_working_bytes(working):
        quality = quality_metrics.measure_quality(convert.picture_of(image, settings))
    for code in settings.dropped_codes:
        if code in quality.issues:
            message = quality_metrics.describe_issue(code, quality.scores)
            raise LeftOut(FilterReason(code.lower()), Stage.ENCODE, message, upright_size(image.frame))


def _build(
    ref: ImageRef, read: ReadImage, image: convert.ConvertedImage, annotated: Annotated, recipe: ShardRecipe
) -> Converted:
    """Builds the record and the ledger entry of an image.

    Raises:
      ImageFault: If the layout cannot store it.
    """
    private = private_metadata(image.encoded, _KIND_OF_FORMAT[image.format]) if image.kept else ()
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
        source_bytes=read.size,
        decoder_warning=image.decoding.warning,
        damaged=image.decoding.damaged,
        file_name=ref.file_name,
        fold=ref.fold if ref.fold >= 0 else None,
        private=",".join(private),
        dtype=image.dtype if recipe.settings.states_dtype else "",
    )
    example = build_example(
        recipe.layout, recipe.ids, ref, image, read.sha256, annotated.values, recipe.texts
    )
    return Converted(entry, example, read.size, image.decoding.seconds, on_background=image.on_background)


def _map_candidate(read: ReadImage, recipe: ShardRecipe) -> Converted:
    """Converts the images that the hook of `--map` makes of one image.

    Raises:
      ImageFault: If the image is faulty, the hook fails, or the layout cannot store what it returns.
      LeftOut: If the hook leaves the image out.
    """
    ref, settings = read.ref, recipe.settings
    hook = load_hook(settings.map)
    mapped_images: list[Converted] = []
    with UNDERWAY.working_on(ref.location, "decode"):
        for mapped, image, fits in convert.map_image(read.data, ref, hook, settings):
            item = mapped_ref(ref, mapped, fits, settings)
            check_labels(item, settings, recipe.ids)
            # The reservation for the image, which is still held, covers its masks.
            annotated = annotate(item, image, settings, recipe.ids, read.mask, has_memory=True)
            result = _build(item, read, image, annotated, recipe)
            if mapped_images:
                result = result._replace(source_bytes=0, decode_seconds=None)
            mapped_images.append(result)
    if len(mapped_images) > 1 or mapped_images[0].entry.key != ref.key:
        mapped_images = [
            result._replace(entry=result.entry._replace(source_key=ref.key)) for result in mapped_images
        ]
    first, *more = mapped_images
    return first._replace(more=tuple(more))


def _memory_fault(ref: ImageRef) -> Exception:
    """Distinguishes a file that needs absurd memory from a machine that has no memory left.

    Any accepted picture fits into the working memory of a process. If that much can be allocated now, the
    decoder asked for more than the size of the picture explains.
    """
    try:
        bytearray(WORKING_BYTES)
    except MemoryError:
        return EngineError(
            f"The machine ran out of memory at {ref.uri}; lower --max_pixels or use a "
            "larger machine, then run again with --resume."
        )
    return ImageFault(
        QuarantineReason.CORRUPT, Stage.DECODE, "decoding it takes more memory than its size explains"
    )


def convert_ref(ref: ImageRef, recipe: ShardRecipe) -> Converted:
    """Reads and converts one image.

    Raises:
      EngineError: If the storage or the machine failed, or the source changed.
    """
    return convert_read(read_ref(ref, recipe), recipe)


def convert_refs(
    refs: Sequence[ImageRef], recipe: ShardRecipe, records: Mapping[str, ReusableRecord] | None = None
) -> Iterator[Converted]:
    """Converts references in parallel, and yields the results in order.

    Unchanged records are copied by the caller's thread, because handing over costs more than copying.

    Args:
      refs: References of the shard.
      recipe: How the shard is converted.
      records: Key -> the record that an earlier build made of the image.

    Raises:
      EngineError: If the storage or the machine failed, or a source changed.
    """
    records = records or {}
    unchanged = {key: item for key, item in records.items() if item.unchanged}
    others = [ref for ref in refs if ref.key not in unchanged]
    before = {
        key: (item.entry.sha256, item.entry.mask_sha256)
        for key, item in records.items()
        if item.entry.outcome == Outcome.WRITTEN
    }
    results = map_reads(partial(_convert_if_changed, recipe), others, recipe, before)
    for ref in refs:
        result = _as_before(ref, unchanged[ref.key]) if ref.key in unchanged else next(results)
        if isinstance(result, ReadImage):
            result = _as_before(ref, records[ref.key], result.size)
        result = result or convert_ref(ref, recipe)  # a record was damaged after its shard was compared
        PROGRESS.add(images=not ref.outcome, bad=result.entry.outcome == Outcome.QUARANTINED)
        yield result


def _convert_if_changed(recipe: ShardRecipe, read: ReadImage) -> Converted | ReadImage:
    """Converts an image, unless an earlier build converted the same bytes: then its record can be copied."""
    return read if read.same else convert_read(read, recipe)


def map_reads(
    function: Callable[[ReadImage], Result],
    refs: Sequence[ImageRef],
    recipe: ShardRecipe,
    before: Mapping[str, SourceDigests] | None = None,
) -> Iterator[Result]:
    """Reads references, and returns an iterator over a function of each image's bytes, in order.

    The pool calls the function, in worker processes if it has any, which read local files themselves.
    Remote files are read ahead, many at once, by threads of this process.

    Args:
      function: Function that converts an image; it must be picklable.
      refs: The references.
      recipe: How they are read.
      before: Key -> digests of the bytes that an earlier build converted.

    Raises:
      EngineError: When iterated, if the storage or the machine failed, or a source changed.
    """
    before = before or {}
    factor, least = _weight(recipe.settings)
    if not any(map(is_remote, map(attrgetter("uri"), refs))):
        return current_pool().map(
            partial(_read_then, function, recipe),
            [(ref, before.get(ref.key)) for ref in refs],
            weigh=lambda item: max(expected_bytes(item[0]) * factor, least),
            crashed=lambda item, how: function(_crash_result(item[0], how, recipe)),
        )
    reads = map_refs(
        lambda ref: read_ref(ref, recipe, before.get(ref.key)),
        refs,
        max_weight=IN_FLIGHT_BYTES // 2,  # the other half may wait for the decoder
    )
    return current_pool().map(
        function,
        reads,
        weigh=lambda read: max(len(read.data) + len(read.mask or b""), len(read.data) * factor, least),
        crashed=lambda read, how: function(_crash_result(read.ref, how, recipe)),
        max_weight=IN_FLIGHT_BYTES // 2,
    )


def _read_then(
    function: Callable[[ReadImage], Result],
    recipe: ShardRecipe,
    item: tuple[ImageRef, SourceDigests | None],
) -> Result:
    ref, before = item
    return function(read_ref(ref, recipe, before))


def _crash_result(ref: ImageRef, how: str, recipe: ShardRecipe) -> ReadImage:
    """Returns an image whose conversion ended its worker process, with the fault that this is.

    Args:
      ref: Reference of the image.
      how: Signal or exit code of the process.
      recipe: How the image was converted.
    """
    read = read_ref(ref, recipe)  # the ledger states the checksum
    hook = recipe.settings.map
    fault = (
        ImageFault(QuarantineReason.MAP_FAILED, Stage.MAP, f"{hook} or the decoder ended the process ({how})")
        if hook
        else ImageFault(QuarantineReason.DECODER_CRASHED, Stage.DECODE, f"the decoder crashed ({how})")
    )
    return read._replace(problem=read.problem or fault)


def _weight(settings: ConvertSettings) -> tuple[int, int]:
    """Returns what an image takes in memory: bytes for each byte of its source, and at least so many.

    A converted image is mostly smaller than its source, except for raw pixels.
    """
    is_raw = settings.stored_format == "raw"
    if not is_raw and settings.depth == "8":
        return 1, 0
    if not settings.target:
        # A kept original, or a file of many bytes per pixel, is not packed as much as a photograph.
        return _PIXELS_OF_A_BYTE if is_raw else 1, 0
    pixel = _PIXEL_BYTES
    if settings.states_dtype:
        pixel = (settings.channels or 3) * (_SAMPLE_BYTES if settings.depth == "keep" else 1) * 4 // 3
    return 1, math.prod(settings.target) * pixel


def measure_read(recipe: ShardRecipe, read: ReadImage) -> tuple[int, Entry, convert.Brightness | None]:
    """Converts an image of a sample, and returns what the plan needs to know of it.

    The records are dropped at once: sixty with raw pixels could be gigabytes.

    Returns:
      The size of its framed records in bytes, which is 0 without a record; its entry; and its brightness if
      it has 16 bits, is scaled to 8, and no setting says what is white.
    """
    converted, settings = convert_read(read, recipe), recipe.settings
    images = (converted, *converted.more)
    size = sum(len(image.example) + FRAME_BYTES for image in images if image.example)
    if not size or settings.depth != "8" or settings.white:
        return size, converted.entry, None
    ref, data = read.ref, read.data
    place = decode_place(ref.place) if ref.place else None
    if place is not None and place.method in BARE_PIXELS:
        if place.dtype[1:] != "u2":
            return size, converted.entry, None
        # Read again with all bits.
        ref, data = ref._replace(place=place._replace(keep=True).encode()), b""
    try:
        data = data or read_image(ref, settings.max_source_bytes)
        bright = convert.brightness(data, ref.key, settings)
    except ImageFault:  # it is sound in 8 bits
        bright = None
    return size, converted.entry, bright
