"""Converts values of COCO's annotations to plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from shardwright.schemas.annotations import ObjectAnnotation
from shardwright.transforms.sources.coco.index import Id, id_of
from shardwright.transforms.sources.image_files import number

_NO_BOX = (math.nan, math.nan, math.nan, math.nan)


def object_of(value: Mapping[str, Any], categories: Mapping[Id, str]) -> ObjectAnnotation:
    """Returns an object; an invalid box becomes one that the settings handle as invalid."""
    outline = value.get("segmentation")
    return ObjectAnnotation(
        label=category_of(value, categories),
        box=_box(value.get("bbox")),
        crowd=bool(number(value.get("iscrowd"))) or value.get("iscrowd") is True,
        area=number(value.get("area")),
        segmentation=outline if outline and isinstance(outline, list | dict) else None,
    )


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
