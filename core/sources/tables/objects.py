"""Parses the `objects` column of Hugging Face's imagefolder: lists of boxes and categories."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.image_files import class_name, number, number_in
from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.units import counted

_BOXES = ("bbox", "bboxes", "boxes")
#: Usual names of the classes of objects.
CLASSES = (
    "category", "categories", "label", "labels", "category_id", "category_ids", "class", "classes",
    "class_name", "category_name", "name",
)  # fmt: skip
_OUTLINES = ("segmentation", "segmentations")
_AREAS = ("area", "areas")
_CROWDS = ("iscrowd", "is_crowd")


def objects_of(value: Any, size: Sequence[Any] = (), class_names: Sequence[str] = ()) -> Annotations:
    """Returns the annotations in the `objects` of a row, with boxes of x, y, width and height in pixels.

    Args:
      value: Mapping of `bbox`, `categories` and similar names to lists, or a list of objects, or either as
        text.
      size: Width and height of the image; empty or None if the row has none.
      class_names: Names of the classes whose numbers the objects have; empty if they have names.

    Raises:
      AnnotationFault: If the objects are wrong; the message says why.
    """
    columns = _columns(_parsed(value))
    boxes, classes = _first(columns, _BOXES), _first(columns, CLASSES)
    if boxes is None or classes is None:
        missing = "bbox" if boxes is None else "categories"
        raise AnnotationFault(f"its objects have no {missing}")
    if len(boxes) != len(classes):
        several = f"{counted(len(boxes), 'box')} and {counted(len(classes), 'category')}"
        raise AnnotationFault(f"its objects have {several}")
    rows = [_box(place, box) for place, box in enumerate(boxes)]
    _check_pixels(rows)
    others = (chain(_first(columns, names) or (), repeat(None)) for names in (_OUTLINES, _AREAS, _CROWDS))
    objects = [
        ObjectAnnotation(
            _label(value, class_names),
            (left, top, left + width, top + height),
            crowd=bool(crowd),
            area=number(area),
            segmentation=outline or None if isinstance(outline, list | Mapping) else None,
        )
        for (left, top, width, height), value, outline, area, crowd in zip(rows, classes, *others)
    ]
    sides = [number_in(side) if isinstance(side, str) else number(side) for side in size]
    whole = [int(side) for side in sides if side is not None and side >= 1]
    return Annotations(objects=tuple(objects), size=(whole[0], whole[1]) if len(whole) == 2 else None)


def _parsed(value: Any) -> Any:
    """Returns the objects in a CSV cell, which are written as JSON or as Python literals."""
    if isinstance(value, str) and value.strip():
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            pass
        try:
            return ast.literal_eval(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            raise AnnotationFault("its objects are not JSON") from None
    return value


def _columns(value: Any) -> Mapping[str, Sequence[Any]]:
    """Returns a mapping of name to the list of the values of all objects."""
    if isinstance(value, Mapping):
        return {name: values for name, values in value.items() if isinstance(values, list | tuple)}
    if isinstance(value, list | tuple) and all(isinstance(item, Mapping) for item in value):
        names = {name for item in value for name in item}
        columns = {name: [item.get(name) for item in value] for name in names}
        return columns if value else {_BOXES[0]: [], CLASSES[0]: []}
    raise AnnotationFault(
        "it has no objects" if value in (None, "") else "its objects are neither lists nor a list"
    )


def _first(columns: Mapping[str, Sequence[Any]], names: Sequence[str]) -> Sequence[Any] | None:
    return next((columns[name] for name in names if name in columns), None)


def _box(place: int, box: Any) -> tuple[float, float, float, float]:
    sides = [number(side) for side in box] if isinstance(box, list | tuple) else []
    if len(sides) != 4 or None in sides:
        raise AnnotationFault(f"the bbox of object {place} is {str(box)[:80]} instead of x, y, width, height")
    left, top, width, height = (float(side) for side in sides if side is not None)
    return left, top, width, height


def _check_pixels(boxes: Sequence[Sequence[float]]) -> None:
    """Checks that boxes are not relative to the image size.

    Raises:
      AnnotationFault: If they are relative; the format has pixels only.
    """
    sides = [side for box in boxes for side in box]
    if sides and all(0 <= side <= 1 for side in sides) and any(side != int(side) for side in sides):
        raise AnnotationFault(
            "its boxes are shares of the image; bbox must be x, y, width and height in pixels"
        )


def _label(value: Any, class_names: Sequence[str]) -> str:
    """Returns the name of a class; empty for a number without one."""
    if isinstance(value, bool) or not isinstance(value, int):
        return class_name(value)
    if not class_names:
        return str(value)
    return class_names[value] if value in range(len(class_names)) else ""
