"""Checks the objects and masks of a record: boxes, classes, key points, sizes and values of masks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from PIL import Image

from shardwright.core.concurrency.thread_pool import reserve_working_bytes
from shardwright.core.images.convert import BYTES_PER_PIXEL
from shardwright.core.images.decode import load_checked, open_image
from shardwright.core.images.signatures import HEAD_BYTES, kind_of
from shardwright.core.records.record_schema import Problem, RecordSchema
from shardwright.core.validation.image import MAX_PIXELS, NOT_AN_IMAGE
from shardwright.core.validation.values import ValuesByRole, first_of, only_bytes, only_text, some_values
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.errors import ImageFault, NotACandidate
from shardwright.schemas.feature_roles import BOX_SIDES, KEYPOINT_ROLES, OBJECT_ROLES
from shardwright.schemas.findings import Finding
from shardwright.schemas.layouts import FeatureRole
from shardwright.schemas.ledger import Entry, ShardHeader
from shardwright.schemas.units import counted, is_or_are

#: Tolerance by which a side or a point may leave the image, because writers use 32-bit floats.
_TOLERANCE = 1e-6


def check_class(number: Any, text: Any, schema: RecordSchema) -> Iterator[Problem]:
    """Compares a class id, and the name stored with it, with the dataset's classes.

    Args:
      number: The class id.
      text: The class name. None if there is none.
      schema: Record schema of the dataset.
    """
    if schema.labels is None or not isinstance(number, int):
        return
    place = number - schema.first_label
    if not 0 <= place < len(schema.labels):
        low, high = schema.first_label, schema.first_label + len(schema.labels) - 1
        yield FindingCode.LABEL_RANGE, f"label {number} is not between {low} and {high}"
    elif isinstance(text, bytes) and text.decode("utf-8", "replace") != schema.labels[place]:
        stated = text.decode("utf-8", "replace")
        message = f"label {number} is {schema.labels[place]!r} but the record says {stated!r}"
        yield FindingCode.LABEL_TEXT, message


def check_objects(of_record: ValuesByRole, schema: RecordSchema) -> Iterator[Problem]:
    """Checks that all object features have equally many values, that boxes are valid, and classes known.

    Only the first problem of each kind is described, with the number of objects that have it.
    """
    values = dict(some_values(of_record, OBJECT_ROLES))
    boxes = of_record.get(FeatureRole.BOXES)
    if boxes is not None and len(boxes) % 4:
        numbers = counted(len(boxes), "number")
        yield FindingCode.LENGTH_MISMATCH, f"the {numbers} of its boxes cannot be divided into fours"
        return
    if boxes is not None and FeatureRole.BOX_XMIN not in values:
        values |= {role: boxes[side::4] for role, side in zip(BOX_SIDES, (1, 0, 3, 2))}
    if not values:
        return
    if unequal := _unequal_lengths(values, schema):
        yield FindingCode.LENGTH_MISMATCH, f"its objects' features {unequal}"
        return
    problems: dict[FindingCode, list[str]] = {}
    for i, row in enumerate(zip(*values.values())):
        for code, message in _object_problems(dict(zip(values, row)), schema):
            problems.setdefault(code, []).append(f"object {i}: {message}")
    for code, messages in problems.items():
        yield code, first_of(messages, "more object")


def _unequal_lengths(values: ValuesByRole, schema: RecordSchema) -> str:
    """Returns the numbers of values of features that should have equally many; empty if they do."""
    if len(set(map(len, values.values()))) == 1:
        return ""
    names = {spec.fill: spec.name for spec in schema.features}
    if FeatureRole.BOXES in names:
        names = {**dict.fromkeys(BOX_SIDES, names[FeatureRole.BOXES]), **names}
    listed = ", ".join(f"{names[role]!r} {len(column)}" for role, column in values.items())
    return f"have unequal numbers of values: {listed}"


def box_sizes(values: ValuesByRole) -> tuple[tuple[float, float], ...]:
    """Returns width and height of each object's box, as fractions of the image's."""
    boxes = values.get(FeatureRole.BOXES)
    if boxes is not None:
        ymin, xmin, ymax, xmax = (boxes[side::4] for side in range(4))
    else:
        xmin, ymin, xmax, ymax = (values.get(role, ()) for role in BOX_SIDES)
    return tuple((right - left, low - top) for left, top, right, low in zip(xmin, ymin, xmax, ymax))


def _object_problems(values: Mapping[FeatureRole, Any], schema: RecordSchema) -> Iterator[Problem]:
    if all(role in values for role in BOX_SIDES):
        xmin, ymin, xmax, ymax = box = tuple(float(values[role]) for role in BOX_SIDES)
        box_text = ", ".join(f"{side:.6g}" for side in box)
        if not all(math.isfinite(side) and -_TOLERANCE <= side <= 1 + _TOLERANCE for side in box):
            yield FindingCode.BOX_RANGE, f"its box ({box_text}) is not between 0 and 1"
        elif xmin > xmax or ymin > ymax:
            yield FindingCode.BOX_ORDER, f"its box ({box_text}) is inverted"
        elif xmin == xmax or ymin == ymax:
            yield FindingCode.BOX_ORDER, f"its box ({box_text}) has no area"
    area = values.get(FeatureRole.OBJECT_AREA)
    if area is not None and area < 0:
        yield FindingCode.WRONG_VALUE, f"its area {area:.6g} is negative"
    crowd = values.get(FeatureRole.OBJECT_CROWD, 0)
    if crowd not in (0, 1) and schema.own:
        yield FindingCode.WRONG_VALUE, f"its crowd {crowd} is neither 0 nor 1"
    yield from check_class(values.get(FeatureRole.OBJECT_LABEL), values.get(FeatureRole.OBJECT_TEXT), schema)


def check_keypoints(values: ValuesByRole, schema: RecordSchema) -> Iterator[Problem]:
    """Checks that all objects have equally many key points, and that labelled points are in the image.

    Only the first problem of each kind is described, with the number of points or objects that have it.
    """
    points = some_values(values, KEYPOINT_ROLES)
    if not any(points.values()):
        return
    if unequal := _unequal_lengths(points, schema):
        yield FindingCode.LENGTH_MISMATCH, f"its key points {unequal}"
        return
    count = len(next(iter(points.values())))
    objects = some_values(values, (*OBJECT_ROLES, FeatureRole.BOXES))
    counts = (len(column) // (4 if role is FeatureRole.BOXES else 1) for role, column in objects.items())
    object_count = next(counts, None)  # unknown without such a feature
    if object_count is not None and (not object_count or count % object_count):
        numbers = f"{counted(count, 'key point')} and {counted(object_count, 'object')}"
        message = f"it has {numbers}, but each object must have equally many key points"
        yield FindingCode.LENGTH_MISMATCH, message
        return
    if problems := list(_position_problems(points)):
        yield FindingCode.KEYPOINT_RANGE, first_of(problems, "more problem")
    size = count // object_count if object_count and schema.own else 0
    if size and (problems := list(_own_problems(points, objects, size))):
        yield FindingCode.WRONG_VALUE, first_of(problems, "more problem")


def _position_problems(points: ValuesByRole) -> Iterator[str]:
    visibilities = points.get(FeatureRole.KEYPOINT_VISIBILITY)
    xs, ys = points.get(FeatureRole.KEYPOINT_X, ()), points.get(FeatureRole.KEYPOINT_Y, ())
    for i, visibility in enumerate(visibilities or ()):
        if visibility not in (0, 1, 2):
            yield f"key point {i}: its visibility {visibility} is not 0, 1 or 2"
    for i, (x, y) in enumerate(zip(xs, ys)):
        # Without visibilities, a point that is not a number is not labelled.
        labelled = visibilities[i] > 0 if visibilities else math.isfinite(x) and math.isfinite(y)
        if labelled and not all(-_TOLERANCE <= value <= 1 + _TOLERANCE for value in (x, y)):
            yield f"key point {i}: its position ({x:.6g}, {y:.6g}) is not between 0 and 1"


def _own_problems(points: ValuesByRole, objects: ValuesByRole, size: int) -> Iterator[str]:
    """Yields what is wrong with counts and names, which other writers may set differently."""
    visibilities = points.get(FeatureRole.KEYPOINT_VISIBILITY, ())
    for i, declared in enumerate(objects.get(FeatureRole.KEYPOINT_NUM, ()) if visibilities else ()):
        labelled = sum(value > 0 for value in visibilities[i * size : (i + 1) * size])
        if declared != labelled:
            yield f"object {i}: it says {declared} labelled key points, but has {labelled}"
    names = points.get(FeatureRole.KEYPOINT_TEXT, ())
    for i in range(size, len(names), size):
        if list(names[i : i + size]) != list(names[:size]):
            yield f"object {i // size}: its key points have other names than those of object 0"


#: Counts of a ledger's objects that are not in the records -> why.
_LOST = {
    "vanished": "outside the stored picture",
    "segments_vanished": "without a pixel in the stored mask",
    "dropped": "bad",
}


def drops_objects(header: ShardHeader) -> bool:
    """Returns whether records of a shard lack objects of their sources."""
    return any(header.boxes.get(name) for name in _LOST)


def dropped_objects(entry: Entry) -> str:
    """Returns which objects of an image its record lacks, and why; empty if it has all of them."""
    counts = entry.boxes or {}
    lost = {name: counts[name] for name in _LOST if counts.get(name, 0) > 0}
    if not lost:
        return ""
    lost_count = sum(lost.values())
    total = lost_count + sum(counts.get(name, 0) for name in ("written", "segments_written"))
    reasons = ", ".join(f"{count:,} {_LOST[name]}" for name, count in lost.items())
    source = f" {entry.source_key}" if entry.source_key else ""
    first = f" ({entry.message})" if "dropped" in lost and entry.message else ""
    objects = f"{lost_count:,} of the {counted(total, 'object')} of its source{source}"
    return f"{objects} {is_or_are(lost_count)} not in the record: {reasons}{first}"


def find_dropped_objects(entries: Iterable[Entry], file: str) -> Iterator[Finding]:
    """Yields a finding for each record of a shard that lacks objects of its source."""
    for index, entry in enumerate(entries):
        if message := dropped_objects(entry):
            code = FindingCode.OBJECTS_DROPPED
            yield Finding(code, message, file, index, entry.offset, entry.key)


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


def check_masks(values: ValuesByRole, schema: RecordSchema) -> Iterator[Problem]:
    """Decodes the masks and compares them with the image's size, the classes, and the format in the record.

    For each feature, only the first problem of each kind is described.
    """
    roles = (FeatureRole.WIDTH, FeatureRole.HEIGHT, FeatureRole.SHAPE)
    width, height, shape = (values.get(role, ()) for role in roles)
    size = (width[0], height[0]) if len(width) == len(height) == 1 else None
    if size is None and len(shape) == 3:
        size = shape[1], shape[0]
    for role, masks in some_values(values, MASKS).items():
        of_objects = role is FeatureRole.OBJECT_MASK
        seen: set[FindingCode] = set()
        for i, mask in enumerate(masks):
            if not mask and schema.unlabelled and not of_objects:
                continue  # a record without such a mask
            for code, message in _mask_problems(mask, size, role, schema):
                if code not in seen:
                    yield code, f"{MASKS[role]}{f' {i}' if of_objects else ''}: {message}"
                seen.add(code)
    semantic_mask = only_bytes(values, FeatureRole.SEMANTIC_MASK)
    declared = only_text(values, FeatureRole.SEMANTIC_FORMAT)
    kind = kind_of(semantic_mask[:HEAD_BYTES]) if semantic_mask else None
    if kind is not None and declared is not None and declared.lower() != kind:
        message = f"{MASKS[FeatureRole.SEMANTIC_MASK]} is {kind} but the record says {declared!r}"
        yield FindingCode.FORMAT_MISMATCH, message


def _mask_problems(
    mask: bytes, size: tuple[int, int] | None, role: FeatureRole, schema: RecordSchema
) -> Iterator[Problem]:
    try:
        opened = open_image(mask, "mask.png", MAX_PIXELS, schema.bounds)
        width, height = opened.image.size
        if size is not None and (width, height) != size:
            message = f"it has {width} x {height} pixels but the record says {size[0]} x {size[1]}"
            yield FindingCode.MASK_MISMATCH, message
            return
        with reserve_working_bytes(max(width * height * BYTES_PER_PIXEL, opened.decoder_bytes())):
            image = load_checked(opened, MAX_PIXELS).image
            message = _value_problem(image, role, schema) if schema.own else ""
    except NotACandidate:
        yield FindingCode.UNDECODABLE, NOT_AN_IMAGE
        return
    except ImageFault as fault:
        yield FindingCode.UNDECODABLE, fault.message
        return
    if message:
        yield FindingCode.MASK_MISMATCH, message


def _value_problem(image: Image.Image, role: FeatureRole, schema: RecordSchema) -> str:
    """Returns the problem with the values of a mask; empty if there is none."""
    if image.mode not in ("1", "L", "P", "I") and not image.mode.startswith("I;"):
        return f"it holds pixels of mode {image.mode}, not one number for each"
    if role is FeatureRole.PANOPTIC_INSTANCE:
        return ""
    values = _values_in(image)
    if role is FeatureRole.OBJECT_MASK:
        unknown = [value for value in values if value not in (0, 1)]
        return f"it holds {_some(unknown)}, not only 0 and 1" if unknown else ""
    if not schema.labels:
        return ""
    low, high = schema.first_label, schema.first_label + len(schema.labels) - 1
    unknown = [value for value in values if not low <= value <= high and value not in _NO_CLASS]
    return f"it holds {_some(unknown)}, but classes are {low} to {high}" if unknown else ""


def _values_in(image: Image.Image) -> list[int]:
    """Returns the different values in a mask."""
    if image.mode in ("L", "P"):  # without copies of the picture, which may be large
        return [value for value, count in enumerate(image.histogram()) if count]
    values = np.asarray(image).ravel()
    if values.min() < 0 or values.max() > _NO_CLASS[-1]:
        return [int(value) for value in np.unique(values)]
    return [int(value) for value in np.flatnonzero(np.bincount(values))]


def _some(values: list[int]) -> str:
    more = f" and {counted(len(values) - _SHOWN_IDS, 'more value')}" if len(values) > _SHOWN_IDS else ""
    return ", ".join(map(str, values[:_SHOWN_IDS])) + more
