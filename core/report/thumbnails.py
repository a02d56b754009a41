"""Reads single records by offset and draws them as small JPEGs. A faulty record never stops the page."""

from __future__ import annotations

import io
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from PIL import Image

from shardwright.core.concurrency.converters import current_converters
from shardwright.core.images.contact_sheet import SIDE
from shardwright.core.images.decode import open_image
from shardwright.core.preview.picture import record_of, record_thumbnail
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.records.sample import records_at
from shardwright.core.report.data import PictureSize, RecordAt, Thumbnail
from shardwright.core.sources.tfrecord.values import size_of
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import EngineError, ImageFault
from shardwright.schemas.layouts import FeatureRole, FeatureSpec
from shardwright.schemas.plan import is_compressed

#: Pixels of the longer side of an image with annotations, which have to be recognized.
_ANNOTATED_SIDE = 320
_ANNOTATIONS = (
    FeatureRole.BOX_XMIN, FeatureRole.BOXES, FeatureRole.OBJECT_MASK, FeatureRole.SEMANTIC_MASK,
    FeatureRole.PANOPTIC_CATEGORY, FeatureRole.PANOPTIC_INSTANCE, FeatureRole.KEYPOINT_X,
)  # fmt: skip
#: Largest size of a thumbnail in bytes, for `SIDE` pixels and in proportion to its side; and the JPEG
#: qualities that are tried to reach it.
_ENOUGH = 7_000
_QUALITIES = (74, 55, 30)
#: Largest uncompressed offset in a compressed shard at which a thumbnail is read.
_MAX_UNPACKED = 64_000_000
#: Seconds after which no more shards are opened, and number of shards that are read in parallel.
_PATIENCE = 60.0
_AT_ONCE = 8
#: Number of thumbnails of a shard that are drawn or wait.
_WAITING = 16
_MAX_PIXELS = 89_478_485

Seen = tuple[Thumbnail, PictureSize | None]


def has_drawn_annotations(features: Iterable[FeatureSpec]) -> bool:
    """Returns whether thumbnails of records with these features show boxes, masks or key points."""
    return any(spec.fill in _ANNOTATIONS for spec in features)


def read_thumbnails(places: Iterable[RecordAt], schema: RecordSchema) -> dict[RecordAt, Seen]:
    """Reads records and draws thumbnails.

    Args:
      places: Places of the records. Each shard is opened once.
      schema: Record schema of the dataset.

    Returns:
      A thumbnail for each sound record, with the size of its image.
    """
    offsets: defaultdict[str, set[int]] = defaultdict(set)
    for place in places:
        offsets[place.path].add(place.offset)
    end = time.monotonic() + _PATIENCE

    def look(item: tuple[str, set[int]]) -> list[tuple[RecordAt, Seen]]:
        path, wanted = item
        found: list[tuple[RecordAt, Seen]] = []
        try:
            if is_compressed(path):
                wanted = {offset for offset in wanted if offset <= _MAX_UNPACKED}
            records = ((RecordAt(path, offset), data) for offset, data in records_at(path, wanted))
            for seen in draw_thumbnails(records, schema):
                found.append(seen)
                if time.monotonic() > end:
                    break
        except (OSError, EngineError, ValueError):
            pass  # the shard is missing or damaged: a finding reports it, and here a thumbnail is missing
        return found

    with ThreadPoolExecutor(_AT_ONCE) as executor:
        results = list(executor.map(lambda item: look(item) if time.monotonic() < end else [],
                                    sorted(offsets.items())))  # fmt: skip
    return {place: seen for found in results for place, seen in found}


def draw_thumbnails(
    records: Iterable[tuple[RecordAt, bytes]], schema: RecordSchema
) -> Iterator[tuple[RecordAt, Seen]]:
    """Draws the images of records small, in parallel, and yields them in order.

    Args:
      records: Places and bytes of the records.
      schema: Their schema.
    """
    return iter(
        current_converters().map(
            partial(_draw, schema),
            records,
            weigh=lambda item: len(item[1]),
            crashed=lambda item, how: (item[0], (Thumbnail(problem=QuarantineReason.DECODER_CRASHED), None)),
            max_items=_WAITING,
            chunk_items=1,
        )
    )


def _draw(schema: RecordSchema, item: tuple[RecordAt, bytes]) -> tuple[RecordAt, Seen]:
    return item[0], thumbnail_of(item[1], schema)


def thumbnail_of(data: bytes, schema: RecordSchema) -> Seen:
    """Draws a record's image small; if that fails, the thumbnail contains the reason."""
    try:
        side = _ANNOTATED_SIDE if has_drawn_annotations(schema.features) else SIDE
        image = record_thumbnail(data, schema, side)
        if image is None:
            return Thumbnail(problem="it contains no image"), None
        return as_thumbnail(image), _facts(data, schema)
    except ImageFault as fault:
        return Thumbnail(problem=fault.reason.value), None
    except Exception as error:  # a damaged record may raise any error in a library; the page continues
        return Thumbnail(problem=type(error).__name__), None


def as_thumbnail(image: Image.Image) -> Thumbnail:
    """Encodes a small image in few bytes."""
    rgb = image.convert("RGB")
    for quality in _QUALITIES:
        buffer = io.BytesIO()
        rgb.save(buffer, "JPEG", quality=quality, optimize=True)
        if buffer.tell() <= _ENOUGH * max(rgb.size) / SIDE:
            break
    return Thumbnail(buffer.getvalue(), *rgb.size)


def _facts(data: bytes, schema: RecordSchema) -> PictureSize | None:
    """Returns the size of a stored image: from its header, or from its record for raw pixels."""
    record = record_of(data, schema)
    name = record.name(FeatureRole.ENCODED)
    span = record.only_bytes(name)
    if span is None:
        return None
    if size := size_of(record):
        width, height = size
    else:
        try:
            encoded = record.value_of(name, span)
            width, height = open_image(encoded, "image", _MAX_PIXELS, schema.bounds).image.size
        except Exception:  # raw pixels whose order the record does not state
            return None
    return PictureSize(width, height, record.size_of(name, span))
