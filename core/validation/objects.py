"""Checks the objects of a record: boxes, classes and key points, and counts the dropped ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardwright.core.records.record_schema import Problem, RecordSchema
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.example import Feature
from shardwright.schemas.feature_roles import KEYPOINT_ROLES, OBJECT_ROLES
from shardwright.schemas.layouts import FeatureRole
from shardwright.schemas.ledger import Entry, ShardHeader
from shardwright.schemas.units import counted, is_or_are

#: Tolerance by which a side or a point may leave the image, because writers use 32-bit floats.
_TOLERANCE = 1e-6
#: Roles of features with the values 0 and 1.
_FLAGS = (FeatureRole.OBJECT_CROWD,)
_SIDES = (FeatureRole.BOX_XMIN, FeatureRole.BOX_YMIN, FeatureRole.BOX_XMAX, FeatureRole.BOX_YMAX)


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
        yield (
            FindingCode.LABEL_TEXT,
            f"label {number} is {schema.labels[place]!r} but the record says "
            f"{text.decode('utf-8', 'replace')!r}",
        )


def check_objects(features: Mapping[str, Feature], schema: RecordSchema) -> Iterator[Problem]:
    """Checks that all object features have equally many values, that boxes are valid, and classes known.

    Only the first problem of each kind is described, with the number of objects that have it.
    """
    values = lists_of(features, schema, OBJECT_ROLES)
    boxes = lists_of(features, schema, (FeatureRole.BOXES,)).get(FeatureRole.BOXES)
    if boxes is not None and len(boxes) % 4:
        numbers = counted(len(boxes), "number")
        yield FindingCode.LENGTH_MISMATCH, f"the {numbers} of its boxes cannot be divided into fours"
        return
    if boxes is not None and FeatureRole.BOX_XMIN not in values:
        values |= {role: boxes[side::4] for role, side in zip(_SIDES, (1, 0, 3, 2))}
    if not values:
        return
    lengths = {role: len(found) for role, found in values.items()}
    if len(set(lengths.values())) > 1:
        names = {spec.fill: spec.name for spec in schema.features}
        if FeatureRole.BOXES in names:
            names = {**dict.fromkeys(_SIDES, names[FeatureRole.BOXES]), **names}
        listed = ", ".join(f"{names[role]!r} {length}" for role, length in lengths.items())
        yield FindingCode.LENGTH_MISMATCH, f"its objects' features have unequal numbers of values: {listed}"
        return
    problems: dict[FindingCode, list[str]] = {}
    for i in range(next(iter(lengths.values()))):
        for code, message in _object_problems({role: found[i] for role, found in values.items()}, schema):
            problems.setdefault(code, []).append(f"object {i}: {message}")
    for code, messages in problems.items():
        more = f" (and {counted(len(messages) - 1, 'more object')})" if len(messages) > 1 else ""
        yield code, messages[0] + more


def box_sizes(features: Mapping[str, Feature], schema: RecordSchema) -> tuple[tuple[float, float], ...]:
    """Returns width and height of each object's box, as fractions of the image's."""
    boxes = lists_of(features, schema, (FeatureRole.BOXES,)).get(FeatureRole.BOXES)
    if boxes is not None:
        ymin, xmin, ymax, xmax = (boxes[side::4] for side in range(4))
    else:
        values = lists_of(features, schema, _SIDES)
        if len(values) < len(_SIDES):
            return ()
        xmin, ymin, xmax, ymax = (values[role] for role in _SIDES)
    return tuple((right - left, low - top) for left, top, right, low in zip(xmin, ymin, xmax, ymax))


def lists_of(
    features: Mapping[str, Feature], schema: RecordSchema, roles: Sequence[FeatureRole]
) -> dict[FeatureRole, Sequence[Any]]:
    """Returns the values of the features that exist and have the right type."""
    values: dict[FeatureRole, Sequence[Any]] = {}
    for spec in schema.features:
        feature = features.get(spec.name)
        if (
            spec.fill is not None
            and spec.fill in roles
            and feature is not None
            and feature.type in (spec.type, None)
        ):
            values[spec.fill] = feature.values
    return values


def _object_problems(values: Mapping[FeatureRole, Any], schema: RecordSchema) -> Iterator[Problem]:
    if all(role in values for role in _SIDES):
        xmin, ymin, xmax, ymax = box = tuple(float(values[role]) for role in _SIDES)
        shown = ", ".join(f"{side:.6g}" for side in box)
        if not all(math.isfinite(side) and -_TOLERANCE <= side <= 1 + _TOLERANCE for side in box):
            yield FindingCode.BOX_RANGE, f"its box ({shown}) is not between 0 and 1"
        elif xmin > xmax or ymin > ymax:
            yield FindingCode.BOX_ORDER, f"its box ({shown}) is inverted"
        elif xmin == xmax or ymin == ymax:
            yield FindingCode.BOX_ORDER, f"its box ({shown}) has no area"
    area = values.get(FeatureRole.OBJECT_AREA)
    if area is not None and area < 0:
        yield FindingCode.WRONG_VALUE, f"its area {area:.6g} is negative"
    for role in _FLAGS:
        if values.get(role, 0) not in (0, 1) and schema.own:
            yield (
                FindingCode.WRONG_VALUE,
                f"its {role.value.removeprefix('object_')} {values[role]} is neither 0 nor 1",
            )
    yield from check_class(values.get(FeatureRole.OBJECT_LABEL), values.get(FeatureRole.OBJECT_TEXT), schema)


_VISIBILITIES = (0, 1, 2)


def check_keypoints(features: Mapping[str, Feature], schema: RecordSchema) -> Iterator[Problem]:
    """Checks that all objects have equally many key points, and that labelled points are in the image.

    Only the first problem of each kind is described, with the number of points or objects that have it.
    """
    points = lists_of(features, schema, KEYPOINT_ROLES)
    if not any(points.values()):
        return
    lengths = {role: len(found) for role, found in points.items()}
    if len(set(lengths.values())) > 1:
        names = {spec.fill: spec.name for spec in schema.features}
        listed = ", ".join(f"{names[role]!r} {length}" for role, length in lengths.items())
        yield (
            FindingCode.LENGTH_MISMATCH,
            f"its key points have unequal numbers of values: {listed}",
        )
        return
    count = next(iter(lengths.values()))
    objects = lists_of(features, schema, (*OBJECT_ROLES, FeatureRole.BOXES))
    number = _number_of_objects(objects)
    if number is not None and (not number or count % number):
        numbers = f"{counted(count, 'key point')} and {counted(number, 'object')}"
        yield (
            FindingCode.LENGTH_MISMATCH,
            f"it has {numbers}, but each object must have equally many key points",
        )
        return
    yield from _with_count(_position_problems(points), FindingCode.KEYPOINT_RANGE)
    if number and schema.own:
        yield from _with_count(_own_problems(points, objects, count // number), FindingCode.WRONG_VALUE)


def _number_of_objects(objects: Mapping[FeatureRole, Sequence[Any]]) -> int | None:
    """Returns the number of objects; None if it is unknown."""
    for role, values in objects.items():
        return len(values) // 4 if role is FeatureRole.BOXES else len(values)
    return None


def _with_count(messages: Iterator[str], code: FindingCode) -> Iterator[Problem]:
    first = next(messages, None)
    if first is not None:
        more = sum(1 for _ in messages)
        yield code, f"{first} (and {counted(more, 'more problem')})" if more else first


def _position_problems(points: Mapping[FeatureRole, Sequence[Any]]) -> Iterator[str]:
    visibilities = points.get(FeatureRole.KEYPOINT_VISIBILITY)
    xs, ys = points.get(FeatureRole.KEYPOINT_X, ()), points.get(FeatureRole.KEYPOINT_Y, ())
    for i, visibility in enumerate(visibilities or ()):
        if visibility not in _VISIBILITIES:
            yield f"key point {i}: its visibility {visibility} is not 0, 1 or 2"
    for i, (x, y) in enumerate(zip(xs, ys)):
        # Without visibilities, a point that is not a number is one that is not labelled.
        labelled = visibilities[i] > 0 if visibilities else math.isfinite(x) and math.isfinite(y)
        if labelled and not all(-_TOLERANCE <= value <= 1 + _TOLERANCE for value in (x, y)):
            yield f"key point {i}: its position ({x:.6g}, {y:.6g}) is not between 0 and 1"


def _own_problems(
    points: Mapping[FeatureRole, Sequence[Any]], objects: Mapping[FeatureRole, Sequence[Any]], size: int
) -> Iterator[str]:
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
    stated = (entry.boxes or {}).items()
    counts = {name: count for name, count in stated if isinstance(count, int)}  # the ledger may be damaged
    lost = {name: counts[name] for name in _LOST if counts.get(name, 0) > 0}
    if not lost:
        return ""
    number = sum(lost.values())
    total = number + sum(counts.get(name, 0) for name in ("written", "segments_written"))
    reasons = ", ".join(f"{count:,} {_LOST[name]}" for name, count in lost.items())
    source = f" {entry.source_key}" if entry.source_key else ""
    first = f" ({entry.message})" if "dropped" in lost and entry.message else ""
    objects = f"{number:,} of the {counted(total, 'object')} of its source{source}"
    return f"{objects} {is_or_are(number)} not in the record: {reasons}{first}"
