"""Draws a small version of a record's image, with the record's annotations on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL.Image import Image

from shardwright.core.images.byte_ranges import as_image_file
from shardwright.core.images.contact_sheet import (
    SIDE,
    raw_thumbnail,
    thumbnail,
    with_boxes,
    with_masks,
    with_points,
)
from shardwright.core.preview.decoded_values import is_bare_pixels, sample_type, without_encodings
from shardwright.core.records.encodings import plain_spec
from shardwright.core.records.record_schema import RecordSchema
from shardwright.core.sources.tfrecord.images import find_image
from shardwright.core.sources.tfrecord.record import SourceRecord
from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.example import Feature, parse_example
from shardwright.schemas.layouts import Encoding, FeatureRole
from shardwright.schemas.sample_types import SAMPLE_TYPES
from shardwright.schemas.tensor_proto import parse_tensor


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
        stored = parse_example(data)
    except ValueError:
        return None
    example = without_encodings(stored, schema)
    encoded = single_value(example, schema, FeatureRole.ENCODED)
    if schema.labels is None and (file := _image_in(data)) is not None:
        image = thumbnail(file, schema.bounds, side)
    elif not isinstance(encoded, bytes):
        return None
    elif is_bare_pixels(example, schema):
        dtype = sample_type(example, schema)
        sides = _sides_in_tensor(stored, schema) or _sides(example, schema, len(encoded), dtype)
        image = raw_thumbnail(encoded, sides, dtype, side)
    else:
        image = thumbnail(encoded, schema.bounds, side)
    return _annotated(image, example, schema)


def _image_in(data: bytes) -> bytes | None:
    """Returns the image in a record of unknown origin as an image file; None if it cannot be found."""
    try:
        image = find_image(SourceRecord(data), None)
        stored = data[image.span.begin : image.span.end]
        place = ByteRange(
            "", 0, len(stored), image.method,
            shape=image.shape, planar=bool(image.planar), dtype=image.dtype,
        )  # fmt: skip
        return as_image_file(stored, place)
    except (ValueError, ImageFault):
        return None


def _sides(example: Mapping[str, Feature], schema: RecordSchema, size: int, dtype: str) -> list[int]:
    """Returns height, width and channels of raw pixels; 0 for an unknown value."""
    itemsize = np.dtype(dtype).itemsize if dtype in SAMPLE_TYPES else 1
    found = [
        single_value(example, schema, role)
        for role in (FeatureRole.HEIGHT, FeatureRole.WIDTH, FeatureRole.CHANNELS)
    ]
    shape = values_of_role(example, schema, FeatureRole.SHAPE)
    if len(shape) == len(found):
        found = list(shape)
    promised = schema.pixels or (None, None, None)
    height, width, channels = (
        side if isinstance(side, int) else promise or 0 for side, promise in zip(found, promised)
    )
    return [height, width, channels or size // max(height * width * itemsize, 1)]


def _sides_in_tensor(stored: Mapping[str, Feature], schema: RecordSchema) -> list[int]:
    """Returns height, width and channels of pixels in a serialized tensor; empty if there is none."""
    spec = schema.spec(FeatureRole.ENCODED)
    if spec is None or spec.encoding is not Encoding.TENSOR or len(stored[spec.name].values) != 1:
        return []
    try:
        value = stored[spec.name].values[0]
        return list(parse_tensor(value).shape) if isinstance(value, bytes) else []
    except (ValueError, TypeError):
        return []


def _annotated(image: Image, example: Mapping[str, Feature], schema: RecordSchema) -> Image:
    """Draws the annotations of a record on its thumbnail."""
    wanted = (FeatureRole.SEMANTIC_MASK, FeatureRole.PANOPTIC_CATEGORY, FeatureRole.PANOPTIC_INSTANCE)
    found = (single_value(example, schema, role) for role in wanted)
    masks = [mask for mask in found if isinstance(mask, bytes) and mask]
    if masks:
        image = with_masks(image, masks, schema.bounds)
    roles = (FeatureRole.BOX_XMIN, FeatureRole.BOX_YMIN, FeatureRole.BOX_XMAX, FeatureRole.BOX_YMAX)
    boxes: list[tuple[float, ...]] = list(zip(*(values_of_role(example, schema, role) for role in roles)))
    fours = values_of_role(example, schema, FeatureRole.BOXES)
    for ymin, xmin, ymax, xmax in zip(*(iter(fours),) * 4) if not boxes else ():
        boxes.append((xmin, ymin, xmax, ymax))
    ids = values_of_role(example, schema, FeatureRole.OBJECT_LABEL) or range(1, len(boxes) + 1)
    image = with_boxes(image, boxes, ids) if boxes else image
    of_points = (FeatureRole.KEYPOINT_X, FeatureRole.KEYPOINT_Y, FeatureRole.KEYPOINT_VISIBILITY)
    points = list(zip(*(values_of_role(example, schema, role) for role in of_points)))
    return with_points(image, points, ids) if points else image


def values_of_role(example: Mapping[str, Feature], schema: RecordSchema, role: FeatureRole) -> Sequence[Any]:
    """Returns the values of the feature with a role; empty if it has another type."""
    spec = schema.spec(role)
    feature = example.get(spec.name) if spec else None
    return feature.values if spec and feature and feature.type is plain_spec(spec).type else ()


def single_value(example: Mapping[str, Feature], schema: RecordSchema, role: FeatureRole) -> object:
    """Returns the value of the feature with a role; None unless it has exactly one value."""
    spec = schema.spec(role)
    feature = example.get(spec.name) if spec else None
    return feature.values[0] if feature and len(feature.values) == 1 else None
