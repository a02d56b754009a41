"""Converts values of COCO's annotations to plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from shardwright.schemas.annotations import ObjectAnnotation
from shardwright.transforms.sources.coco.index import Id, id_of
from shardwright.transforms.sources.image_files import number

_NO_BOX = (math.nan, math.nan, math.nan, math.nan)


def object_of(
    value: Mapping[str, Any],
    categories: Mapping[Id, str],
    keypoints: Mapping[Id, Sequence[str]],
    names: Sequence[str],
) -> ObjectAnnotation:
    """Returns an object; an invalid box becomes one that the settings handle as invalid.

    Args:
      value: The annotation.
      categories: Category id -> class name.
      keypoints: Category id -> names of its key points.
      names: Names of all key points that a record stores; none if it stores no key points.
    """
    outline = value.get("segmentation")
    return ObjectAnnotation(
        label=category_of(value, categories),
        box=_box(value.get("bbox")),
        crowd=bool(number(value.get("iscrowd"))) or value.get("iscrowd") is True,
        area=number(value.get("area")),
        segmentation=outline if outline and isinstance(outline, list | dict) else None,
        keypoints=keypoints_of(value, keypoints, names),
    )


def keypoints_of(
    value: Mapping[str, Any], keypoints: Mapping[Id, Sequence[str]], names: Sequence[str]
) -> tuple[float, ...] | None:
    """Returns x, y and visibility of each named key point; None if the object has none.

    Points that its category does not have are not labelled. If the number of values is wrong, the result has
    a wrong length, so that the settings handle the object as invalid.
    """
    coordinates = value.get("keypoints")
    if not names or not coordinates:
        return None
    found = id_of(value.get("category_id"))
    own = keypoints.get(found, ()) if found is not None else ()
    if not isinstance(coordinates, list) or len(coordinates) != 3 * len(own):
        return (math.nan,)
    numbers = [math.nan if (found_ := number(item)) is None else found_ for item in coordinates]
    points = {name: numbers[3 * i : 3 * i + 3] for i, name in enumerate(own)}
    return tuple(item for name in names for item in points.get(name, (0.0, 0.0, 0.0)))


def category_of(value: Mapping[str, Any], categories: Mapping[Id, str]) -> str:
    """Returns the name of a category; empty if no category has that id."""
    found = id_of(value.get("category_id"))
    return "" if found is None else categories.get(found, "")


def _box(value: Any) -> tuple[float, float, float, float] | None:
    """Returns xmin, ymin, xmax, ymax of COCO's x, y, width, height."""
    if value is None or value == []:
        return None
    sides = [number(side) for side in value] if isinstance(value, list) else []
    if len(sides) != 4 or None in sides:
        return _NO_BOX
    left, upper, width, height = (float(side) for side in sides if side is not None)
    return left, upper, left + width, upper + height
