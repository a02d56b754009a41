"""Converts shapes of annotation tools (polygons, ellipses, rotated boxes, masks) to boxes and outlines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.image_files import number
from shardwright.schemas.units import counted

Box = tuple[float, float, float, float]
Outline = list[list[float]]

#: Number of corners of the polygon that approximates an ellipse.
_CORNERS = 72
#: Number of pixels of the largest image whose masks are read.
MAX_PIXELS = 1 << 28
_MIN_CORNERS = 3


def size_of(
    values: Mapping[str, Any],
    names: tuple[str, str] = ("width", "height"),
    parse: Callable[[Any], float | None] = number,
) -> tuple[int, int] | None:
    """Returns the width and height of an image; None if one of them is missing, or 0 as some tools write.

    Args:
      values: What an annotation file says about the image.
      names: Names of the width and the height.
      parse: Returns the number that a value stands for; None if it is not a number.

    Raises:
      AnnotationFault: If one is not a whole number; the message names it.
    """
    sides = []
    for name in names:
        side = parse(values.get(name) or 0)
        if side is None or side != int(side):
            raise AnnotationFault(f"its {name} is {values[name]!r}")
        sides.append(int(side))
    return (sides[0], sides[1]) if min(sides) > 0 else None


def numbers_of(
    values: Any, names: Sequence[str], parse: Callable[[Any], float | None] = number
) -> list[float]:
    """Returns the numbers with some names.

    Args:
      values: A mapping of name to value.
      names: Names of the numbers.
      parse: Returns the number that a value stands for; None if it is not a number.

    Raises:
      ValueError: If one is missing or not a number; the message names it.
    """
    numbers = []
    for name in names:
        if not isinstance(values, Mapping) or name not in values:
            raise ValueError(f"{name} is missing")
        value = parse(values[name])
        if value is None:
            raise ValueError(f"{name} is {str(values[name])[:60]!r}, which is not a number")
        numbers.append(float(value))
    return numbers


def hull(corners: Sequence[float]) -> Box:
    """Returns the bounding box of the points x0, y0, x1, y1, ..."""
    xs, ys = corners[::2], corners[1::2]
    return min(xs), min(ys), max(xs), max(ys)


def corners_of(points: Any, parse: Callable[[Any], float | None] = number) -> list[float]:
    """Returns x0, y0, x1, y1, ... of a list of pairs; empty if it is not a list.

    Args:
      points: The pairs.
      parse: Returns the number that a value stands for; None if it is not a number.

    Raises:
      ValueError: If one of the points is not a pair of numbers.
    """
    corners = []
    for point in points if isinstance(points, list) else []:
        sides = [parse(side) for side in point] if isinstance(point, list) and len(point) == 2 else [None]
        if None in sides:
            raise ValueError(f"its point {str(point)[:60]} is not a pair of numbers")
        corners += [float(side) for side in sides if side is not None]
    return corners


def polygon(corners: list[float]) -> tuple[Box, Outline]:
    """Returns the box and the outline of a polygon.

    Raises:
      ValueError: If it has fewer than three corners.
    """
    if len(corners) < 2 * _MIN_CORNERS:
        raise ValueError(f"a polygon with {counted(len(corners) // 2, 'point')}")
    return hull(corners), [corners]


def rectangle(
    box: Box, degrees: float, around: tuple[float, float] | None = None
) -> tuple[Box, Outline | None]:
    """Returns the box and the outline of a rectangle that is rotated clockwise; no outline if it is not.

    Args:
      box: Rectangle before the rotation.
      degrees: Angle.
      around: Point that stays in its place; None for the center.
    """
    xmin, ymin, xmax, ymax = box
    corners = ((xmin, ymin), (xmax, ymin), (xmax, ymax), (xmin, ymax))
    center = around or ((xmin + xmax) / 2, (ymin + ymax) / 2)
    return _rotate(box, corners, center, degrees) if degrees else (box, None)


def ellipse(
    x: float, y: float, x_radius: float, y_radius: float, degrees: float = 0.0
) -> tuple[Box, Outline | None]:
    """Returns the box and the outline of an ellipse that is rotated clockwise around its center."""
    angles = (2 * math.pi * place / _CORNERS for place in range(_CORNERS))
    corners = [(x + x_radius * math.cos(angle), y + y_radius * math.sin(angle)) for angle in angles]
    box = (x - x_radius, y - y_radius, x + x_radius, y + y_radius)
    return _rotate(box, corners, (x, y), degrees)


def _rotate(
    box: Box, corners: Sequence[tuple[float, float]], center: tuple[float, float], degrees: float
) -> tuple[Box, Outline | None]:
    """Returns the box around a rotated shape, and its outline.

    A box without area, or an inverted one, is returned as it is: its corners look sound after a rotation.
    """
    if not (box[0] < box[2] and box[1] < box[3]):
        return box, None
    x, y = center
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    outline = []
    for left, top in corners:
        dx, dy = left - x, top - y
        outline += [x + dx * cosine - dy * sine, y + dx * sine + dy * cosine]
    return hull(outline), [outline]


def mask_outline(mask: np.ndarray, left: int, top: int, size: tuple[int, int]) -> Mapping[str, Any]:
    """Returns COCO's run lengths of a mask that covers a part of an image.

    Args:
      mask: Mask of shape (height, width); pixels other than 0 belong to the object. Pixels outside of the
        image are cut off.
      left: Column of the image where the mask begins.
      top: Row of the image where the mask begins.
      size: Width and height of the image.

    Raises:
      ValueError: If the image is too large.
    """
    width, height = size
    if width * height > MAX_PIXELS:
        raise ValueError(f"the image of {width} x {height} pixels is too large for masks")
    mask = mask[max(-top, 0) : max(height - top, 0), max(-left, 0) : max(width - left, 0)]
    columns, rows = np.nonzero(mask.T)  # column by column, as in COCO
    places = (columns + max(left, 0)) * height + rows + max(top, 0)
    begins = places[np.diff(places, prepend=-2) != 1]
    ends = places[np.diff(places, append=-2) != 1] + 1
    edges = np.stack([begins, ends], axis=1).ravel()
    counts = np.diff(edges, prepend=0, append=width * height)
    return {"size": [height, width], "counts": counts.tolist()}


def mask_of_runs(runs: Sequence[int], width: int, height: int) -> np.ndarray:
    """Returns a mask from run lengths along its rows; the first run is of zeros.

    Raises:
      ValueError: If the run lengths do not make a mask of that size.
    """
    if min(width, height) <= 0 or width * height > MAX_PIXELS or sum(runs) != width * height or min(runs) < 0:
        raise ValueError(f"its run lengths make {sum(runs)} pixels instead of {width} x {height}")
    values = np.arange(len(runs), dtype=np.int64) % 2
    return np.repeat(values.astype(np.uint8), runs).reshape(height, width)
