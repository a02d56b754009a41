"""Draws outlines of objects (COCO's polygons and run lengths) as COCO's own tools do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from shardwright.core.images.boxes import BadObject, Box
from shardwright.schemas.annotations import Segmentation

#: Least number of coordinates in a polygon: two points have no area.
_MIN_NUMBERS = 6
#: A corner may lie outside the picture by this many times its side, because drawing takes time per pixel.
_MAX_SIDES = 4
#: Coordinates of a corner are below this.
_NO_CORNER = 1e300
#: Limit for the total length of an outline's sides, in pixels; ten million take half a second.
_MAX_LENGTH = 10**7


def hull(segmentation: Segmentation, size: tuple[int, int]) -> Box | None:
    """Returns the box around an outline: xmin, ymin, xmax, ymax; None if it encloses nothing.

    Args:
      segmentation: Outline in pixels.
      size: Width and height of the picture that the outline is for.

    Raises:
      BadObject: If the outline is damaged.
    """
    if isinstance(segmentation, Mapping):
        mask = _decode(segmentation, size)
        columns, rows = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
        if not columns.size:
            return None
        return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)
    polygons = _polygons(segmentation, size)
    if not polygons:
        return None
    corners = np.concatenate(polygons).reshape(-1, 2)
    (left, upper), (right, lower) = corners.min(axis=0).tolist(), corners.max(axis=0).tolist()
    return left, upper, right, lower


def scaled(segmentation: Segmentation, size: tuple[int, int]) -> Segmentation:
    """Converts an outline from shares of width and height to pixels; run lengths already are in pixels.

    Raises:
      BadObject: If the outline is damaged.
    """
    if isinstance(segmentation, Mapping):
        return segmentation
    polygons = [_numbers(polygon) for polygon in _list(segmentation)]
    return [(numbers * np.resize(size, len(numbers))).tolist() for numbers in polygons]


def draw(segmentation: Segmentation, size: tuple[int, int]) -> Image.Image:
    """Draws an outline: mode L, 1 inside and 0 outside.

    Args:
      segmentation: Outline in pixels.
      size: Width and height of the picture that the outline is for.

    Raises:
      BadObject: If the outline is damaged.
    """
    width, height = size
    if isinstance(segmentation, Mapping):
        return Image.fromarray(_decode(segmentation, size))
    polygons = _polygons(segmentation, size)
    if not polygons:
        return Image.new("L", size)
    from pycocotools import mask as coco  # type: ignore[import-untyped,unused-ignore]

    runs = coco.merge(coco.frPyObjects([polygon.tolist() for polygon in polygons], height, width))
    left, _, extent, _ = map(int, coco.toBbox(runs))
    drawn = np.zeros((height, width), np.uint8)
    # The pixels are stored by column; converting all of them to rows would take longer than drawing.
    drawn[:, left : left + extent] = coco.decode(runs)[:, left : left + extent]
    return Image.fromarray(drawn)


def _polygons(segmentation: Any, size: tuple[int, int]) -> list[np.ndarray]:
    """Returns the polygons that enclose an area."""
    farthest = _MAX_SIDES * max(size)
    polygons = []
    for polygon in _list(segmentation):
        numbers = _numbers(polygon)
        if len(numbers) % 2:
            raise BadObject(f"its outline has {len(numbers)} numbers, an odd count, where pairs are needed")
        if (np.abs(numbers) > farthest).any():
            raise BadObject("its outline is far outside the image")
        if len(numbers) >= _MIN_NUMBERS:
            polygons.append(numbers)
    length = 0.0
    for polygon in polygons:
        corners = polygon.reshape(-1, 2)
        length += float(np.abs(corners - np.roll(corners, 1, axis=0)).max(axis=1).sum())
    if length > _MAX_LENGTH:
        raise BadObject("its outline is too long to be drawn")
    return polygons


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise BadObject("its outline is not a list of polygons")
    return value


def _numbers(polygon: Any) -> np.ndarray:
    listed = _list(polygon)
    try:
        numbers = np.array(listed, np.float64) if {int, float}.issuperset(map(type, listed)) else None
    except OverflowError:
        numbers = None
    if numbers is None or not (np.abs(numbers) < _NO_CORNER).all():
        raise BadObject("its outline contains something that is not a number")
    return numbers


def _decode(value: Mapping[str, Any], size: tuple[int, int]) -> np.ndarray:
    """Decodes run lengths to rows of 0 and 1; runs go down the columns (COCO's maskApi)."""
    width, height = size
    found = value.get("size")
    if not isinstance(found, Sequence) or list(found) != [height, width]:
        raise BadObject(f"its mask is for {found} (height, width), but the image has [{height}, {width}]")
    counts = value.get("counts")
    runs = _unpack(counts) if isinstance(counts, (str, bytes)) else _list(counts)
    if not all(isinstance(run, int) and 0 <= run <= width * height for run in runs):
        raise BadObject("its run lengths are damaged")
    if sum(runs) != width * height:
        raise BadObject(f"its run lengths make {sum(runs)} pixels instead of {width * height}")
    ones = np.arange(len(runs), dtype=np.int64) % 2
    return np.ascontiguousarray(np.repeat(ones.astype(np.uint8), runs).reshape(width, height).T)


def _unpack(text: str | bytes) -> list[int]:
    """Unpacks run lengths that COCO stores as text: five bits per character, low bits first.

    From the fourth on, each is stored as its difference from the one before last (cocoapi, maskApi.c,
    rleFrString).
    """
    codes = text if isinstance(text, bytes) else text.encode("ascii", "replace")
    runs: list[int] = []
    position = 0
    while position < len(codes):
        value = shift = 0
        more = True
        while more:
            if position == len(codes) or not 48 <= codes[position] < 112 or shift > 60:
                raise BadObject("its run lengths are damaged")
            code = codes[position] - 48
            value |= (code & 0x1F) << shift
            more = bool(code & 0x20)
            position += 1
            shift += 5
            if not more and code & 0x10:
                value |= -1 << shift
        runs.append(value + runs[-2] if len(runs) > 2 else value)
    return runs
