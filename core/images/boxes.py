"""Maps boxes and key points of objects from the source image to the stored image. Pure arithmetic."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shardwright.core.images.geometry import Frame, Geometry
from shardwright.schemas.annotations import Annotations
from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.units import counted

#: xmin, ymin, xmax, ymax.
Box = tuple[float, float, float, float]
#: Number of pixels by which a box may exceed its picture, because tools round.
TOLERANCE = 0.5


class BadObject(ValueError):
    """An object that cannot be used; its message says why."""


class Keypoint(NamedTuple):
    """A key point.

    Attributes:
      x: Position in pixels of the source, or as a share of the stored picture's width.
      y: Position in pixels, or as a share of the height.
      visibility: COCO's number: 0 not labelled, 1 hidden, 2 visible.
    """

    x: float
    y: float
    visibility: int


#: What a record stores for a point that is not labelled, like COCO.
UNLABELLED = Keypoint(0.0, 0.0, 0)


def bad_annotation(message: str) -> ImageFault:
    """Returns the fault of an image whose annotations cannot be used."""
    return ImageFault(QuarantineReason.BAD_ANNOTATION, Stage.BUILD, message)


def upright_size(frame: Frame) -> tuple[int, int]:
    """Returns the size of the source image after its EXIF orientation is applied."""
    width, height = frame.size
    return (height, width) if frame.orientation >= 5 else (width, height)


def is_upright(size: tuple[int, int], frame: Frame, what: str) -> bool:
    """Returns whether an annotation is for the upright picture, not for the pixels as the file stores them.

    Args:
      size: Width and height that the annotation is for.
      frame: Sizes and orientation of the picture.
      what: Words for the annotation in the message.

    Raises:
      ImageFault: If the size fits neither.
    """
    if size == frame.size:
        return False
    if size == upright_size(frame):
        return True
    raise bad_annotation(
        f"{what} {size[0]} x {size[1]} pixels, but the image has {frame.size[0]} x {frame.size[1]}"
    )


def are_upright(annotations: Annotations, frame: Frame) -> bool:
    """Returns whether objects are described for the upright picture, not as the file stores it.

    Raises:
      ImageFault: If they are for a picture of another size.
    """
    if not annotations.size or min(annotations.size) <= 0 or annotations.relative:
        return annotations.upright
    if annotations.upright and annotations.size == upright_size(frame):
        return True
    return is_upright(annotations.size, frame, "its annotations are for")


def check_box(box: Box, size: tuple[int, int], clip: bool) -> tuple[Box, bool]:
    """Returns the part of a box inside its picture, and whether the box reaches beyond the picture.

    Args:
      box: Coordinates in pixels.
      size: Width and height of the picture that the box is for.
      clip: Whether to accept a box that reaches beyond the picture.

    Raises:
      BadObject: If it is not a box, or not accepted.
    """
    xmin, ymin, xmax, ymax = box
    width, height = size
    inside = (max(xmin, 0.0), max(ymin, 0.0), min(xmax, float(width)), min(ymax, float(height)))
    has_area = inside[2] > inside[0] and inside[3] > inside[1]
    is_beyond = max(-xmin, -ymin, xmax - width, ymax - height) > TOLERANCE
    if not all(map(math.isfinite, box)):
        problem = "is not a box of numbers"
    elif xmax < xmin or ymax < ymin:
        problem = "is inverted"
    elif xmax == xmin or ymax == ymin:
        problem = "has no area"
    elif not has_area or (is_beyond and not clip):
        problem = f"reaches beyond the image of {width} x {height} pixels"
    else:
        return inside, is_beyond
    raise BadObject(f"its box ({', '.join(f'{side:.6g}' for side in box)}) {problem}")


def turn(box: Box, size: tuple[int, int], orientation: int) -> Box:
    """Maps a box from the pixels as the file stores them to the upright picture.

    Args:
      box: Coordinates in pixels.
      size: Width and height of the picture in the file.
      orientation: EXIF orientation, 1 to 8.
    """
    xmin, ymin, xmax, ymax = box
    if orientation in (2, 3, 7, 8):  # the stored right side comes first
        xmin, xmax = size[0] - xmax, size[0] - xmin
    if orientation in (3, 4, 6, 7):  # the stored lower side comes first
        ymin, ymax = size[1] - ymax, size[1] - ymin
    return (ymin, xmin, ymax, xmax) if orientation >= 5 else (xmin, ymin, xmax, ymax)


def place_point(point: tuple[float, float], geometry: Geometry) -> tuple[float, float] | None:
    """Maps a point from the upright picture to shares of the stored picture; None if the crop removes it.

    The shares are 32-bit floats in [0, 1].
    """
    shares = []
    for axis, value in enumerate(point):
        begin, end = geometry.box[axis], geometry.box[axis + 2]
        if not begin <= value <= end:
            return None
        placed = geometry.offset[axis] + (value - begin) * geometry.size[axis] / (end - begin)
        shares.append(float(np.float32(min(max(placed / geometry.canvas[axis], 0.0), 1.0))))
    return shares[0], shares[1]


def place_box(box: Box, geometry: Geometry) -> tuple[Box, float] | None:
    """Maps a box from the upright picture to the stored picture.

    Returns:
      The box in pixels of the stored picture, and the share of its area that remains after the crop. None if
      the crop removes the box, or leaves less than half a stored pixel of a side that it cuts: that is a
      rounding error and shows nothing.
    """
    xs = _place_side(box[0], box[2], geometry, 0)
    ys = _place_side(box[1], box[3], geometry, 1)
    if xs is None or ys is None:
        return None
    return (xs[0], ys[0], xs[1], ys[1]), xs[2] * ys[2]


def _place_side(low: float, high: float, geometry: Geometry, axis: int) -> tuple[float, float, float] | None:
    """Returns begin, end and remaining share of a box's side."""
    begin, end = geometry.box[axis], geometry.box[axis + 2]
    left, right = max(low, begin), min(high, end)
    if right <= left:
        return None
    scale = geometry.size[axis] / (end - begin)
    share = 1.0 if (left, right) == (low, high) else (right - left) / (high - low)
    if share < 1 and (right - left) * scale < TOLERANCE:
        return None
    offset = geometry.offset[axis]
    return offset + (left - begin) * scale, offset + (right - begin) * scale, share


def normalized(box: Box, canvas: tuple[int, int]) -> Box:
    """Returns a box as shares of the stored picture, in the 32-bit floats that a record stores.

    The values are in [0, 1]. A box with an area keeps an area.
    """
    xmin, xmax = _shares(box[0], box[2], canvas[0])
    ymin, ymax = _shares(box[1], box[3], canvas[1])
    return xmin, ymin, xmax, ymax


def _shares(low: float, high: float, size: int) -> tuple[float, float]:
    first, last = (np.float32(min(max(side / size, 0.0), 1.0)) for side in (low, high))
    if first < last:
        return float(first), float(last)
    if first < 1:
        # Some readers round numbers below the least normal one to zero.
        return float(first), float(max(np.nextafter(first, np.float32(1)), np.finfo(np.float32).tiny))
    return float(np.nextafter(first, np.float32(0))), float(last)


def read_keypoints(
    values: Sequence[float] | None, names: Sequence[str], size: tuple[int, int], relative: bool
) -> tuple[list[Keypoint], list[str]]:
    """Returns the key points of an object in pixels of the picture that they are for.

    Args:
      values: x, y and visibility of each point; None if the object has no key points.
      names: Names of the points.
      size: Width and height of the picture.
      relative: Whether x and y are shares of width and height.

    Returns:
      The points, and what is wrong with each one outside of the picture, which counts as not labelled.

    Raises:
      BadObject: If the values are not those of the named points.
    """
    if values is None:
        return [UNLABELLED] * len(names), []
    if len(values) != 3 * len(names):
        raise BadObject(f"its key points are not x, y and visibility of {counted(len(names), 'point')}")
    width, height = size
    points, outside = [], []
    for name, x, y, visibility in zip(names, values[::3], values[1::3], values[2::3]):
        if visibility not in (0, 1, 2):
            raise BadObject(f"the visibility of its key point {name} is {visibility:.6g}, not 0, 1 or 2")
        point = UNLABELLED
        if visibility:
            if not math.isfinite(x) or not math.isfinite(y):
                raise BadObject(f"its key point {name} ({x:.6g}, {y:.6g}) is not at a position")
            if relative:
                x, y = x * width, y * height
            if -TOLERANCE <= x <= width + TOLERANCE and -TOLERANCE <= y <= height + TOLERANCE:
                inside = min(max(x, 0.0), float(width)), min(max(y, 0.0), float(height))
                point = Keypoint(*inside, int(visibility))
            else:
                outside.append(
                    f"its key point {name} ({x:.6g}, {y:.6g}) lies outside the image of {width} x {height} "
                    "pixels"
                )
        points.append(point)
    return points, outside


def place_keypoints(
    points: Sequence[Keypoint], frame: Frame, upright: bool, counts: Counter[str]
) -> list[Keypoint]:
    """Maps key points to the stored picture, as boxes are mapped.

    A point that the crop removes becomes one that is not labelled.

    Args:
      points: Points in pixels.
      frame: The steps from the source image to the stored image.
      upright: Whether the points are for the upright picture.
      counts: Number of points that the crop removes, which is increased.
    """
    placed = []
    for point in points:
        position = None
        if point.visibility:
            place = point.x, point.y
            turned = place if upright else turn((*place, *place), frame.size, frame.orientation)[:2]
            position = place_point(turned, frame.geometry)
            counts["keypoints_vanished"] += position is None
        placed.append(Keypoint(*position, point.visibility) if position else UNLABELLED)
    return placed
