"""Checks the masks of a record: their sizes, and that their values are valid classes or 0 and 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from PIL import Image

from shardwright.core.images.decode import load, open_image
from shardwright.core.images.signatures import HEAD_BYTES, kind_of
from shardwright.core.records.record_schema import Problem, RecordSchema
from shardwright.core.validation.image import MAX_PIXELS
from shardwright.core.validation.objects import lists_of
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.errors import ImageFault, NotACandidate
from shardwright.schemas.example import Feature
from shardwright.schemas.layouts import FeatureRole
from shardwright.schemas.units import counted

#: Roles of features that contain masks, and the words for such a mask.
MASKS: Mapping[FeatureRole, str] = {
    FeatureRole.OBJECT_MASK: "the mask of object",
    FeatureRole.SEMANTIC_MASK: "its semantic mask",
    FeatureRole.PANOPTIC_CATEGORY: "its mask of categories",
    FeatureRole.PANOPTIC_INSTANCE: "its mask of instances",
}
#: Ids without a class: nothing, and padding or ignored pixels (for 8 and for 16 bits).
_NO_CLASS = (0, 0xFF, 0xFFFF)
_SHOWN_IDS = 5


def check_masks(features: Mapping[str, Feature], schema: RecordSchema) -> Iterator[Problem]:
    """Decodes the masks and compares their sizes with the image's, and their values with the classes.

    For each feature, only the first problem of each kind is described.
    """
    size = _picture_size(features, schema)
    for role, masks in lists_of(features, schema, tuple(MASKS)).items():
        of_objects = role is FeatureRole.OBJECT_MASK
        seen: set[FindingCode] = set()
        for i, mask in enumerate(masks):
            if not mask and schema.unlabelled and not of_objects:
                continue  # a record without such a mask
            for code, message in _mask_problems(mask, size, role, schema):
                if code not in seen:
                    yield code, f"{MASKS[role]}{f' {i}' if of_objects else ''}: {message}"
                seen.add(code)
    yield from _check_format(features, schema)


def _check_format(features: Mapping[str, Feature], schema: RecordSchema) -> Iterator[Problem]:
    """Compares the mask format that the record states with the mask's bytes."""
    lists = lists_of(features, schema, (FeatureRole.SEMANTIC_MASK, FeatureRole.SEMANTIC_FORMAT))
    masks, formats = (
        lists.get(role, ()) for role in (FeatureRole.SEMANTIC_MASK, FeatureRole.SEMANTIC_FORMAT)
    )
    if len(masks) == len(formats) == 1 and masks[0]:
        kind, declared = kind_of(masks[0][:HEAD_BYTES]), formats[0].decode("utf-8", "replace")
        if kind is not None and declared.lower() != kind:
            yield (
                FindingCode.FORMAT_MISMATCH,
                f"{MASKS[FeatureRole.SEMANTIC_MASK]} is {kind} but the record says {declared!r}",
            )


def _picture_size(features: Mapping[str, Feature], schema: RecordSchema) -> tuple[int, int] | None:
    """Returns the width and height that a record states, or None."""
    lists = lists_of(features, schema, (FeatureRole.WIDTH, FeatureRole.HEIGHT, FeatureRole.SHAPE))
    width, height, shape = (
        lists.get(role, ()) for role in (FeatureRole.WIDTH, FeatureRole.HEIGHT, FeatureRole.SHAPE)
    )
    if len(width) == len(height) == 1:
        return width[0], height[0]
    return (shape[1], shape[0]) if len(shape) == 3 else None


def _mask_problems(
    mask: bytes, size: tuple[int, int] | None, role: FeatureRole, schema: RecordSchema
) -> Iterator[Problem]:
    try:
        opened = open_image(mask, "mask.png", MAX_PIXELS, schema.bounds)
        width, height = opened.image.size
        if size is not None and (width, height) != size:
            yield (
                FindingCode.MASK_MISMATCH,
                f"it has {width} x {height} pixels but the record says {size[0]} x {size[1]}",
            )
            return
        image = load(opened, MAX_PIXELS)
    except NotACandidate:
        yield FindingCode.UNDECODABLE, "its bytes are not in an image format that can be decoded"
        return
    except ImageFault as fault:
        yield FindingCode.UNDECODABLE, fault.message
        return
    if schema.own:
        message = _value_problem(image, role, schema)
        if message:
            yield FindingCode.MASK_MISMATCH, message


def _value_problem(image: Image.Image, role: FeatureRole, schema: RecordSchema) -> str:
    """Returns the problem with the values of a mask; empty if there is none."""
    if image.mode not in ("1", "L", "P", "I") and not image.mode.startswith("I;"):
        return f"it holds pixels of mode {image.mode}, not one number for each"
    if role is FeatureRole.PANOPTIC_INSTANCE:
        return ""
    found = _values_in(image)
    if role is FeatureRole.OBJECT_MASK:
        unknown = [value for value in found if value not in (0, 1)]
        return f"it holds {_some(unknown)}, not only 0 and 1" if unknown else ""
    if not schema.labels:
        return ""
    low, high = schema.first_label, schema.first_label + len(schema.labels) - 1
    unknown = [value for value in found if not low <= value <= high and value not in _NO_CLASS]
    return f"it holds {_some(unknown)}, but classes are {low} to {high}" if unknown else ""


def _values_in(image: Image.Image) -> list[int]:
    """Returns the different values in a mask."""
    if image.mode in ("L", "P"):
        return [value for value, count in enumerate(image.histogram()) if count]
    values = np.asarray(image)
    if values.dtype == np.bool_:
        return [value for value in (0, 1) if (values == value).any()]
    if values.min() < 0 or values.max() > _NO_CLASS[-1]:
        return [int(value) for value in np.unique(values)]
    return [int(value) for value in np.flatnonzero(np.bincount(values.ravel()))]


def _some(values: list[int]) -> str:
    more = f" and {counted(len(values) - _SHOWN_IDS, 'more value')}" if len(values) > _SHOWN_IDS else ""
    return ", ".join(map(str, values[:_SHOWN_IDS])) + more
