"""Maps boxes from the source image to the stored image. Pure arithmetic."""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

from shardwright.core.images.convert import Frame
from shardwright.core.images.geometry import Geometry
from shardwright.schemas.annotations import Annotations
from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault

#: xmin, ymin, xmax, ymax.
Box = tuple[float, float, float, float]
#: Number of pixels by which a box may exceed its picture, because tools round.
TOLERANCE = 0.5


class BoxFault(NamedTuple):
    """What is wrong with a box.

    Attributes:
      message: The problem, in a few words.
      clipped: The part of the box inside the picture; None if there is none or it is not known.
    """

    message: str
    clipped: Box | None = None


class PlacedBox(NamedTuple):
    """A box in the stored picture.

    Attributes:
      box: Coordinates in pixels of the stored picture.
      share: Share of the box's area that remains after the crop, 0 to 1.
    """

    box: Box
    share: float = 1.0


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

    Args:
      annotations: The annotations of a picture.
      frame: Sizes and orientation of the picture.

    Raises:
      ImageFault: If they are for a picture of another size.
    """
    if not annotations.size or min(annotations.size) <= 0 or annotations.relative:
        return annotations.upright
    if annotations.upright and annotations.size == upright_size(frame):
        return True
    return is_upright(annotations.size, frame, "its annotations are for")


def check_box(box: Box, size: tuple[int, int]) -> Box | BoxFault:
    """Returns a box inside its picture, or what is wrong with it.

    Args:
      box: Coordinates in pixels.
      size: Width and height of the picture that the box is for.
    """
    xmin, ymin, xmax, ymax = box
    width, height = size
    shown = ", ".join(f"{side:.6g}" for side in box)
    if not all(map(math.isfinite, box)):
        return BoxFault(f"its box ({shown}) is not a box of numbers")
    if xmax < xmin or ymax < ymin:
        return BoxFault(f"its box ({shown}) is inverted")
    if xmax == xmin or ymax == ymin:
        return BoxFault(f"its box ({shown}) has no area")
    inside = (max(xmin, 0.0), max(ymin, 0.0), min(xmax, float(width)), min(ymax, float(height)))
    has_area = inside[2] > inside[0] and inside[3] > inside[1]
    outside = max(-xmin, -ymin, xmax - width, ymax - height)
    if outside > TOLERANCE or not has_area:
        message = f"its box ({shown}) reaches beyond the image of {width} x {height} pixels"
        return BoxFault(message, inside if has_area else None)
    return inside


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


def turn_point(point: tuple[float, float], size: tuple[int, int], orientation: int) -> tuple[float, float]:
    """Maps a point from the pixels as the file stores them to the upright picture, as `turn` maps boxes."""
    x, y = point
    left, upper, _, _ = turn((x, y, x, y), size, orientation)
    return left, upper


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
        shares.append(_float32(min(max(placed / geometry.canvas[axis], 0.0), 1.0)))
    return shares[0], shares[1]


def place_box(box: Box, geometry: Geometry) -> PlacedBox | None:
    """Maps a box from the upright picture to the stored picture.

    Returns None if the crop removes the box, or leaves less than half a stored pixel of a side that it cuts:
    that is a rounding error and shows nothing.
    """
    xs = _place_side(box[0], box[2], geometry, 0)
    ys = _place_side(box[1], box[3], geometry, 1)
    if xs is None or ys is None:
        return None
    return PlacedBox((xs[0], ys[0], xs[1], ys[1]), xs[2] * ys[2])


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
    first, last = (_float32(min(max(side / size, 0.0), 1.0)) for side in (low, high))
    if first < last:
        return first, last
    return (first, _after(first)) if first < 1 else (_before(first), last)


def _float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _bits(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def _after(value: float) -> float:
    """Returns the next larger 32-bit float; after zero, one that no reader rounds to zero."""
    return float(struct.unpack("<f", struct.pack("<I", max(_bits(value) + 1, _bits(2.0**-126))))[0])


def _before(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<I", _bits(value) - 1))[0])
