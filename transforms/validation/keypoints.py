"""Checks the key points of a record: their number for each object, positions, visibilities and counts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardwright.schemas.codes import FindingCode
from shardwright.schemas.example import Feature
from shardwright.schemas.feature_roles import KEYPOINT_ROLES, OBJECT_ROLES
from shardwright.schemas.layouts import FeatureRole
from shardwright.schemas.units import counted
from shardwright.transforms.records.record_schema import Problem, RecordSchema
from shardwright.transforms.validation.objects import lists_of

#: Tolerance by which a point may leave the image, because writers use 32-bit floats.
_TOLERANCE = 1e-6
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
