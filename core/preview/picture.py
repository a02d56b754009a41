"""Draws a small version of a record's image, with the record's annotations on it."""

from __future__ import annotations

import contextlib

import numpy as np
from PIL.Image import Image

from shardwright.core.images.byte_ranges import as_image_file, bare_pixels
from shardwright.core.images.contact_sheet import (
    SIDE,
    raw_thumbnail,
    thumbnail,
    with_boxes,
    with_masks,
    with_points,
)
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.sources.tfrecord.images import NoImage, find_image, own_image
from shardwright.core.sources.tfrecord.record import PIXEL_MASKS, KnownRecords, SourceRecord, names_of_specs
from shardwright.core.sources.tfrecord.values import boxes_of
from shardwright.schemas.byte_range import BARE_PIXELS
from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.feature_roles import KEYPOINT_ROLES
from shardwright.schemas.layouts import FeatureRole
from shardwright.schemas.sample_types import SAMPLE_TYPES


def record_of(data: bytes, schema: RecordSchema) -> SourceRecord:
    """Returns the features of a record, with their roles in the dataset.

    Raises:
      ValueError: If the record is malformed.
    """
    return SourceRecord(data, names_of_specs(schema.features))


def record_thumbnail(data: bytes, schema: RecordSchema, side: int = SIDE) -> Image | None:
    """Returns a thumbnail of a record's image with its boxes and masks; None if it has no image.

    Args:
      data: The record.
      schema: Record schema of the dataset.
      side: Pixels of the longer side of the thumbnail.

    Raises:
      ImageFault: If the image or a mask cannot be decoded.
    """
    try:
        record = record_of(data, schema)
    except ValueError:
        return None
    looked_at = record if schema.own else SourceRecord(data)
    try:
        image = _image_of(looked_at, schema, side)
    except ValueError as error:
        if not any(looked_at.features.get(name) for name in looked_at.names.images):
            return None
        reason = error.reason if isinstance(error, NoImage) else QuarantineReason.CORRUPT
        raise ImageFault(reason, Stage.READ, str(error)) from error
    with contextlib.suppress(ValueError):  # validation reports lists that do not fit
        return _annotated(image, record, schema)
    return image


def _image_of(record: SourceRecord, schema: RecordSchema, side: int) -> Image:
    """Returns a thumbnail of a record's image.

    Raises:
      ImageFault: If the image cannot be decoded.
      ValueError: If the record has no image, or is malformed.
    """
    if not schema.own:
        image, dtype = find_image(record, None), ""
    else:
        encoded, typed = schema.spec(FeatureRole.ENCODED), record.name(FeatureRole.DTYPE)
        dtype = encoded.pixel_type if encoded else ""
        states_format = record.name(FeatureRole.FORMAT) in record.features
        own = KnownRecords(
            raw=record.text(FeatureRole.FORMAT) == "raw" if states_format else schema.pixels is not None,
            picture=schema.pixels or (None, None, None),
            dtypes=SAMPLE_TYPES if typed else (dtype or "uint8",),
        )
        image = own_image(record, own, None)
        dtype = np.dtype(image.dtype).name if typed else dtype
    stored = record.stored(image)
    if schema.own and image.method in BARE_PIXELS:
        return raw_thumbnail(bare_pixels(stored, image), image.shape, dtype, side)
    return thumbnail(as_image_file(stored, image), schema.bounds, side)


def _annotated(image: Image, record: SourceRecord, schema: RecordSchema) -> Image:
    """Draws the annotations of a record on its thumbnail.

    Raises:
      ImageFault: If a mask cannot be decoded.
      ValueError: If lists of values do not fit each other.
    """
    parts = map(record.only_part, map(record.name, PIXEL_MASKS))
    masks = [record.value_of(part) for part in parts if part and part.length]
    if masks:
        image = with_masks(image, masks, schema.bounds)
    boxes = boxes_of(record)
    ids = record.numbers(FeatureRole.OBJECT_LABEL) or range(1, len(boxes) + 1)
    image = with_boxes(image, boxes, ids) if boxes else image
    points = list(zip(*map(record.numbers, KEYPOINT_ROLES[:3])))
    return with_points(image, points, ids) if points else image
