"""Maps key points of objects from the source image to the stored image. Pure arithmetic."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shardwright.core.images.boxes import TOLERANCE, place_point, turn_point
from shardwright.core.images.convert import Frame
from shardwright.schemas.feature_roles import FeatureRole
from shardwright.schemas.units import counted


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
_VISIBILITIES = (0, 1, 2)


def read_keypoints(
    values: Sequence[float] | None, names: Sequence[str], size: tuple[int, int], relative: bool
) -> list[Keypoint]:
    """Returns the key points of an object in pixels of the picture that they are for.

    Args:
      values: x, y and visibility of each point; None if the object has no key points.
      names: Names of the points.
      size: Width and height of the picture.
      relative: Whether x and y are shares of width and height.

    Raises:
      ValueError: If the values are not those of the named points; the message says why.
    """
    if values is None:
        return [UNLABELLED] * len(names)
    if len(values) != 3 * len(names):
        raise ValueError(f"its key points are not x, y and visibility of {counted(len(names), 'point')}")
    width, height = size if relative else (1, 1)
    points = []
    for name, x, y, visibility in zip(names, values[::3], values[1::3], values[2::3]):
        if visibility not in _VISIBILITIES:
            raise ValueError(f"the visibility of its key point {name} is {visibility:.6g}, not 0, 1 or 2")
        if not visibility:
            points.append(UNLABELLED)
        elif not math.isfinite(x) or not math.isfinite(y):
            raise ValueError(f"its key point {name} ({x:.6g}, {y:.6g}) is not at a position")
        else:
            points.append(Keypoint(x * width, y * height, int(visibility)))
    return points


def outside_problem(points: Sequence[Keypoint], names: Sequence[str], size: tuple[int, int]) -> str:
    """Returns what is wrong with the first labelled point outside the picture; empty if there is none."""
    for name, point in zip(names, points):
        if point.visibility and not _is_inside(point, size):
            return (
                f"its key point {name} ({point.x:.6g}, {point.y:.6g}) lies outside the image of "
                f"{size[0]} x {size[1]} pixels"
            )
    return ""


def _is_inside(point: Keypoint, size: tuple[int, int]) -> bool:
    """Returns whether a point is in the picture, or leaves it by less than tools round."""
    return all(-TOLERANCE <= value <= side + TOLERANCE for value, side in zip(point, size))


def place_keypoints(
    points: Sequence[Keypoint], frame: Frame, size: tuple[int, int], upright: bool, counts: Counter[str]
) -> list[Keypoint]:
    """Maps key points to the stored picture, as boxes are mapped.

    A point outside the picture, or removed by the crop, becomes one that is not labelled.

    Args:
      points: Points in pixels.
      frame: The steps from the source image to the stored image.
      size: Width and height of the picture that the points are for.
      upright: Whether that is the upright picture.
      counts: Numbers of points outside and removed by the crop, which are increased.
    """
    placed = []
    for point in points:
        if point.visibility and not _is_inside(point, size):
            counts["keypoints_outside"] += 1
            point = UNLABELLED
        if not point.visibility:
            placed.append(UNLABELLED)
            continue
        inside = min(max(point.x, 0.0), float(size[0])), min(max(point.y, 0.0), float(size[1]))
        turned = inside if upright else turn_point(inside, frame.size, frame.orientation)
        found = place_point(turned, frame.geometry)
        counts["keypoints_vanished"] += found is None
        placed.append(Keypoint(*found, point.visibility) if found else UNLABELLED)
    return placed


def keypoint_values(
    objects: Sequence[Sequence[Keypoint]], names: Sequence[str]
) -> Mapping[FeatureRole, Sequence[Any]]:
    """Returns the values of the features for key points: of each object in turn, all its points."""
    points = [point for found in objects for point in found]
    return {
        FeatureRole.KEYPOINT_X: [point.x for point in points],
        FeatureRole.KEYPOINT_Y: [point.y for point in points],
        FeatureRole.KEYPOINT_VISIBILITY: [point.visibility for point in points],
        FeatureRole.KEYPOINT_TEXT: [name.encode("utf-8", "replace") for name in names] * len(objects),
        FeatureRole.KEYPOINT_NUM: [sum(point.visibility > 0 for point in found) for found in objects],
    }
