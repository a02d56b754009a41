"""Reads the objects, masks and captions of records as annotations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.example import FeatureType, Span
from shardwright.schemas.feature_roles import KEYPOINT_ROLES
from shardwright.schemas.layouts import FeatureRole, Layout, Needs
from shardwright.schemas.units import counted
from shardwright.transforms.sources.tfrecord.labels import Classes, named, texts_of
from shardwright.transforms.sources.tfrecord.layouts import FeatureNames
from shardwright.transforms.sources.tfrecord.record import SourceRecord

#: Largest number of objects of an image, and of bytes of its captions.
_MAX_OBJECTS, _MAX_CAPTION_BYTES = 100_000, 1 << 20
#: Greater than every id that fits into a record.
_MAX_ID = 2**63
_OBJECT_ROLES = (
    FeatureRole.OBJECT_LABEL,
    FeatureRole.OBJECT_TEXT,
    FeatureRole.OBJECT_CROWD,
    FeatureRole.OBJECT_AREA,
    FeatureRole.OBJECT_VIEW,
    FeatureRole.OBJECT_MASK,
)
_FLAGS = {
    "difficult": FeatureRole.OBJECT_DIFFICULT,
    "truncated": FeatureRole.OBJECT_TRUNCATED,
    "occluded": FeatureRole.OBJECT_OCCLUDED,
    "group_of": FeatureRole.OBJECT_GROUP_OF,
    "depiction": FeatureRole.OBJECT_DEPICTION,
}

#: Function that returns the encoded `ByteRange` of a value, given the feature and the span.
PlaceOf = Callable[[str, Span], str]


def annotations_of(
    record: SourceRecord,
    names: FeatureNames,
    layout: Layout,
    class_names: Mapping[int, str],
    place_of: PlaceOf,
    must: bool = True,
) -> tuple[Annotations, Classes]:
    """Returns the annotations of a record that a layout stores, and the classes of its objects.

    Args:
      record: Record to read.
      names: Roles of its features.
      layout: Layout of the records to write.
      class_names: Class names by id, from a file beside the records.
      place_of: Function that returns the encoded byte range of a mask.
      must: Whether the record must have the masks that the layout needs.

    Raises:
      ValueError: If the record contradicts itself, or has no value that is needed.
    """
    wanted = layout.by_role()
    found = Annotations(size=_size(record, names))
    classes = Classes((), ())
    if layout.needs is Needs.OBJECTS:
        objects, classes = _objects(record, names, class_names, place_of)
        found = replace(found, objects=objects, relative=True, captions=_captions(record, names))
        if not wanted.keys().isdisjoint(KEYPOINT_ROLES):
            found = _with_keypoints(found, record, names)
    if FeatureRole.SEMANTIC_MASK in wanted:
        what = "mask with the class of every pixel" if must and layout.needs is Needs.SEMANTIC else ""
        found = replace(
            found, semantic_place=_mask(record, names.name(FeatureRole.SEMANTIC_MASK), what, place_of)
        )
    if not wanted.keys().isdisjoint((FeatureRole.PANOPTIC_CATEGORY, FeatureRole.PANOPTIC_INSTANCE)):
        what = "panoptic masks of categories and instances" if must and layout.needs is Needs.PANOPTIC else ""
        places = [
            _mask(record, names.name(role), what, place_of)
            for role in (FeatureRole.PANOPTIC_CATEGORY, FeatureRole.PANOPTIC_INSTANCE)
        ]
        if all(places):
            found = replace(found, category_place=places[0], instance_place=places[1])
    return found, classes


def _mask(record: SourceRecord, name: str, what: str, place_of: PlaceOf) -> str:
    """Returns the encoded byte range of a mask; empty if it is missing.

    Raises:
      ValueError: If the mask is missing and `what`, the description of a needed mask, is not empty.
    """
    spans = record.bytes_of(name) if name else None
    if spans and len(spans) == 1 and spans[0].begin < spans[0].end:
        return place_of(name, spans[0])
    if what:
        raise ValueError(f"it has no {what}")
    return ""


def _size(record: SourceRecord, names: FeatureNames) -> tuple[int, int] | None:
    """Returns the width and height in a record; None if it has none."""
    sides = [_numbers(record, name) for name in map(names.name, (FeatureRole.WIDTH, FeatureRole.HEIGHT))]
    if all(len(side) == 1 and isinstance(side[0], int) and side[0] > 0 for side in sides):
        return sides[0][0], sides[1][0]
    return None


def _captions(record: SourceRecord, names: FeatureNames) -> tuple[str, ...]:
    caption = names.name(FeatureRole.CAPTION)
    spans = (record.bytes_of(caption) if caption else None) or ()
    if sum(span.end - span.begin for span in spans) > _MAX_CAPTION_BYTES:
        raise ValueError(f"its captions have more than {_MAX_CAPTION_BYTES:,} bytes")
    return tuple(str(record.value_of(caption, span), "utf-8", "replace") for span in spans)


def _numbers(record: SourceRecord, name: str) -> Sequence[Any]:
    """Returns the numbers of a feature; none if the feature is missing.

    Raises:
      ValueError: If the feature has bytes.
    """
    if not name:
        return ()
    feature = record.feature(name)
    if feature.type is FeatureType.BYTES:
        raise ValueError(f"its feature {name!r} is not a list of numbers")
    return feature.values


def _objects(
    record: SourceRecord, names: FeatureNames, class_names: Mapping[int, str], place_of: PlaceOf
) -> tuple[tuple[ObjectAnnotation, ...], Classes]:
    boxes = _boxes(record, names.boxes)
    label, text, crowd, area, view, mask = map(names.name, _OBJECT_ROLES)
    numbers = [int(number) for number in _numbers(record, label) if abs(number) < _MAX_ID]
    if numbers != list(_numbers(record, label)):
        raise ValueError(f"its feature {label!r} has values that are not class ids")
    classes = named(numbers, texts_of(record, text), class_names)
    count = len(boxes) or len(classes.names)
    if count > _MAX_OBJECTS:
        raise ValueError(f"it has {counted(count, 'object')}, more than {_MAX_OBJECTS:,}")

    def each(what: str, values: Sequence[Any], missing: Any) -> Sequence[Any]:
        if len(values) not in (0, count):
            raise ValueError(
                f"it has {counted(count, 'object')} and {counted(len(values), 'value')} of {what}"
            )
        return values or [missing] * count

    columns: dict[str, Sequence[Any]] = {
        "label": each("the class", classes.names, ""),
        "box": each("the box", boxes, None),
        "crowd": [value == 1 for value in each("is_crowd", _numbers(record, crowd), 0)],
        "area": each("the area", _numbers(record, area), None),
        "view": [value or None for value in each("the view", texts_of(record, view), None)],
        "mask_place": [
            place_of(mask, span) if span and span.end > span.begin else ""
            for span in each("the mask", (record.bytes_of(mask) if mask else None) or [], None)
        ],
    }
    for flag, role in _FLAGS.items():
        values = each(flag, _numbers(record, names.name(role)), None)
        columns[flag] = [None if value is None else value == 1 for value in values]
    objects = tuple(
        ObjectAnnotation(**dict(zip(columns, values, strict=True)))
        for values in zip(*columns.values(), strict=True)
    )
    return objects, classes


def _with_keypoints(found: Annotations, record: SourceRecord, names: FeatureNames) -> Annotations:
    """Returns annotations with the key points of all objects.

    Raises:
      ValueError: If the lists of key points do not fit the objects.
    """
    x, y, visibility, text = map(names.name, KEYPOINT_ROLES)
    xs, ys, seen = (_numbers(record, name) for name in (x, y, visibility))
    points, objects = texts_of(record, text), found.objects or ()
    count = len(xs)
    if not count:
        return found
    if any(len(values) not in (0, count) for values in (seen, points)) or len(ys) != count:
        raise ValueError("its lists of key points differ in length")
    if not objects or count % len(objects):
        raise ValueError(f"it has {counted(count, 'key point')} and {counted(len(objects), 'object')}")
    size = count // len(objects)
    if any(points[i] != points[i % size] for i in range(len(points))):
        raise ValueError("the key points of its objects have different names")
    seen = seen or [2 if math.isfinite(a) and math.isfinite(b) else 0 for a, b in zip(xs, ys)]
    # JSON has no numbers that are not finite, and the position of such a point has no meaning.
    values = [value for a, b, v in zip(xs, ys, seen) for value in ((a, b, v) if v else (0.0, 0.0, 0))]
    return replace(
        found,
        objects=tuple(
            replace(item, keypoints=tuple(values[3 * i * size : 3 * (i + 1) * size]))
            for i, item in enumerate(objects)
        ),
        keypoint_names=tuple(points[:size]) or tuple(map(str, range(1, size + 1))),
    )


def _boxes(record: SourceRecord, names: tuple[str, ...]) -> list[tuple[float, float, float, float]]:
    """Returns xmin, ymin, xmax, ymax of every box, relative to the image size."""
    lists = [_numbers(record, name) for name in names]
    if len(lists) == 4:
        if len(set(map(len, lists))) > 1:
            lengths = ", ".join(str(len(found)) for found in lists)
            raise ValueError(f"its lists of box corners differ in length ({lengths})")
        return list(zip(*lists, strict=True))
    values = lists[0] if lists else ()
    if len(values) % 4:
        raise ValueError(f"the {len(values)} numbers of its feature {names[0]!r} are not boxes")
    corners = zip(values[::4], values[1::4], values[2::4], values[3::4], strict=True)
    return [(xmin, ymin, xmax, ymax) for ymin, xmin, ymax, xmax in corners]
