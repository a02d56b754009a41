"""Draws records and quarantined images as small JPEGs. A faulty image never stops the page."""

from __future__ import annotations

import contextlib
import io
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from PIL import Image

from shardwright.core import storage
from shardwright.core.concurrency.worker_pool import current_pool
from shardwright.core.images.decode import open_image
from shardwright.core.images.faults import pillow_settings
from shardwright.core.preview import SIDE, fit, record_of, record_thumbnail, thumbnail
from shardwright.core.records.compression import records_at
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.records.values import size_of
from shardwright.core.report.measures import PictureSize
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.dataset import QUARANTINE_JSONL
from shardwright.schemas.errors import EngineError, ImageFault
from shardwright.schemas.feature_roles import PIXEL_MASKS
from shardwright.schemas.layouts import FeatureRole, FeatureSpec
from shardwright.schemas.plan import is_compressed

#: Pixels of the longer side of an image with annotations, which have to be recognized.
_ANNOTATED_SIDE = 320
_ANNOTATIONS = (
    FeatureRole.BOX_XMIN, FeatureRole.BOXES, FeatureRole.KEYPOINT_X, FeatureRole.OBJECT_MASK, *PIXEL_MASKS,
)  # fmt: skip
#: Largest size of a thumbnail in bytes, for `SIDE` pixels and in proportion to its side; and the JPEG
#: qualities that are tried to reach it.
_ENOUGH = 7_000
_QUALITIES = (74, 55, 30)
#: Largest uncompressed offset in a compressed shard at which a thumbnail is read.
_MAX_UNPACKED = 64_000_000
#: Seconds after which no more shards are opened.
_PATIENCE = 60.0
#: Number of thumbnails of a shard that are drawn or wait.
_WAITING = 16
_MAX_PIXELS = 89_478_485
#: Largest number of quarantined images that are listed.
_MAX_QUARANTINED = 120
#: Number of bytes of `quarantine.jsonl` that are read.
_MAX_BYTES = 2_000_000
#: Largest number of quarantined images that are tried, together and per reason.
_MAX_PICTURES, _MAX_OF_REASON = 24, 6
#: Largest size in bytes and in pixels of a source that is read.
_MAX_SOURCE = 16_000_000
_MAX_SOURCE_PIXELS = 24_000_000
#: Seconds for all quarantined images together. If a network does not answer, the page is drawn without them.
PATIENCE = 6.0
#: Formats in which a part of an image can be decoded.
_PARTIAL = ("jpeg", "png")


class Thumbnail(NamedTuple):
    """A small image.

    Attributes:
      jpeg: Contents of the JPEG. Empty if the image could not be decoded.
      width: Width in pixels.
      height: Height in pixels.
      problem: Short reason why there is no thumbnail.
      stored: Size of the stored image. None if it is not known.
    """

    jpeg: bytes = b""
    width: int = 0
    height: int = 0
    problem: str = ""
    stored: PictureSize | None = None


class RecordAt(NamedTuple):
    """The place of a record: its shard, and the offset of its frame in the uncompressed shard."""

    file: str
    offset: int


class Quarantined(NamedTuple):
    """An image that was left out for a fault."""

    key: str
    uri: str
    stage: str
    reason: str
    message: str
    picture: Thumbnail | None = None


def has_drawn_annotations(features: Iterable[FeatureSpec]) -> bool:
    """Returns whether thumbnails of records with these features show boxes, masks or key points."""
    return any(spec.fill in _ANNOTATIONS for spec in features)


def read_thumbnails(
    places: Iterable[RecordAt], paths: Mapping[str, str], schema: RecordSchema
) -> dict[RecordAt, Thumbnail]:
    """Reads records and draws thumbnails.

    Args:
      places: Places of the records. Each shard is opened once.
      paths: Mapping of shard to its path.
      schema: Record schema of the dataset.

    Returns:
      A thumbnail for each sound record.
    """
    offsets: defaultdict[str, set[int]] = defaultdict(set)
    for place in places:
        offsets[place.file].add(place.offset)
    end = time.monotonic() + _PATIENCE

    def look(item: tuple[str, set[int]]) -> list[tuple[RecordAt, Thumbnail]]:
        file, file_offsets = item
        thumbnails: list[tuple[RecordAt, Thumbnail]] = []
        if time.monotonic() > end:
            return thumbnails
        if is_compressed(file):
            file_offsets = {offset for offset in file_offsets if offset <= _MAX_UNPACKED}
        # If the shard is missing or damaged, a finding reports it, and here a thumbnail is missing.
        with contextlib.suppress(OSError, EngineError, ValueError):
            records = records_at(paths[file], file_offsets)
            placed = ((RecordAt(file, offset), data) for offset, data in records)
            for seen in draw_thumbnails(placed, schema):
                thumbnails.append(seen)
                if time.monotonic() > end:
                    break
        return thumbnails

    return dict(chain.from_iterable(storage.at_once(look, sorted(offsets.items()))))


def draw_thumbnails(
    records: Iterable[tuple[RecordAt, bytes]], schema: RecordSchema
) -> Iterator[tuple[RecordAt, Thumbnail]]:
    """Draws the images of records small, in parallel, and yields them in order."""
    return current_pool().map(
        partial(_draw, schema),
        records,
        weigh=lambda item: len(item[1]),
        crashed=lambda item, how: (item[0], Thumbnail(problem=QuarantineReason.DECODER_CRASHED)),
        max_items=_WAITING,
        chunk_items=1,
    )


def _draw(schema: RecordSchema, item: tuple[RecordAt, bytes]) -> tuple[RecordAt, Thumbnail]:
    """Draws a record's image small; if that fails, the thumbnail contains the reason."""
    place, data = item
    try:
        side = _ANNOTATED_SIDE if has_drawn_annotations(schema.features) else SIDE
        image = record_thumbnail(data, schema, side)
        if image is not None:
            return place, as_thumbnail(image)._replace(stored=_stored_size(data, schema))
        problem = "it contains no image"
    except ImageFault as fault:
        problem = fault.reason.value
    except Exception as error:  # a damaged record may raise any error in a library; the page continues
        problem = type(error).__name__
    return place, Thumbnail(problem=problem)


def as_thumbnail(image: Image.Image) -> Thumbnail:
    """Encodes a small image in few bytes."""
    rgb = image.convert("RGB")
    for quality in _QUALITIES:
        buffer = io.BytesIO()
        rgb.save(buffer, "JPEG", quality=quality, optimize=True)
        if buffer.tell() <= _ENOUGH * max(rgb.size) / SIDE:
            break
    return Thumbnail(buffer.getvalue(), *rgb.size)


def _stored_size(data: bytes, schema: RecordSchema) -> PictureSize | None:
    """Returns the size of a stored image: from its header, or from its record for raw pixels."""
    record = record_of(data, schema)
    part = record.only_part(record.name(FeatureRole.ENCODED))
    if part is None:
        return None
    size = size_of(record)
    if size is None:
        try:
            size = open_image(record.value_of(part), "image", _MAX_PIXELS, schema.bounds).image.size
        except Exception:  # raw pixels whose order the record does not state
            return None
    return PictureSize(*size, record.size_of(part))


def read_quarantine(directory: str) -> list[Quarantined]:
    """Reads the beginning of `quarantine.jsonl`, and selects some lines of each reason.

    Returns:
      The selected lines. Empty if there is no such file, or it is damaged.
    """
    try:
        data = storage.read_range(storage.join(directory, QUARANTINE_JSONL), 0, _MAX_BYTES)
    except (OSError, EngineError):
        return []
    by_reason: defaultdict[str, list[Quarantined]] = defaultdict(list)
    for line in data.split(b"\n"):
        try:
            value = json.loads(line)
            texts = [str(value[name]) for name in Quarantined._fields if name != "picture"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # an empty, incomplete or foreign line
        item = Quarantined._make([*texts, None])
        by_reason[item.reason].append(item)
    share = max(1, _MAX_QUARANTINED // max(1, len(by_reason)))
    selected = [item for _, items in sorted(by_reason.items()) for item in items[:share]]
    return selected[:_MAX_QUARANTINED]


def draw_quarantine(items: Sequence[Quarantined], directory: str) -> tuple[Quarantined, ...]:
    """Adds thumbnails of images whose source still exists; reads no storage except the dataset's own.

    What crashed a decoder in a worker process would here end the command, so it is not decoded again.
    """
    tried: list[int] = []
    of_reason = defaultdict[str, int](int, {QuarantineReason.DECODER_CRASHED: _MAX_OF_REASON})
    for i, item in enumerate(items):
        if len(tried) < _MAX_PICTURES and of_reason[item.reason] < _MAX_OF_REASON and _near(item, directory):
            of_reason[item.reason] += 1
            tried.append(i)
    thumbnails: dict[int, Thumbnail | None] = {}
    end = time.monotonic() + PATIENCE

    def work() -> None:
        for i in tried:
            if time.monotonic() > end:
                return
            thumbnails[i] = draw_source(items[i].uri)

    # A read that hangs in a network must delay neither the page nor the end of the process.
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(PATIENCE)
    return tuple(item._replace(picture=thumbnails.get(i)) for i, item in enumerate(items))


def _near(item: Quarantined, directory: str) -> bool:
    """Returns whether a source is a local file, or an object in the dataset's own kind of storage."""
    if not storage.is_remote(item.uri):
        return bool(item.uri) and not storage.is_remote(directory)
    return item.uri.startswith(("gs://", "s3://", "az://")) and item.uri[:5] == directory[:5]


def draw_source(uri: str) -> Thumbnail | None:
    """Returns a thumbnail of a faulty image, or None if it cannot be decoded at all."""
    try:
        if storage.size_of(uri) > _MAX_SOURCE:
            return None
        data = storage.read_bytes(uri)
        try:
            open_image(data, "image", _MAX_SOURCE_PIXELS)
            return as_thumbnail(thumbnail(data))
        except ImageFault:
            return as_thumbnail(_partial(data))
    except Exception:  # expected, because the image is faulty
        return None


def _partial(data: bytes) -> Image.Image:
    """Decodes the readable part of a truncated or damaged image.

    Raises:
      OSError: If it has another format than those that can be decoded in parts.
      ValueError: If it has too many pixels.
    """
    with pillow_settings(_MAX_SOURCE_PIXELS):
        image = Image.open(io.BytesIO(data), formats=_PARTIAL)
        if image.width * image.height > _MAX_SOURCE_PIXELS:
            raise ValueError("it has too many pixels")
        with contextlib.suppress(Exception):  # keep the part before the damage
            image.load()
    image.tile = []  # stop Pillow from trying again
    return fit(image, SIDE)
