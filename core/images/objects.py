"""Maps objects, with boxes and outlines, from the source image to the stored image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from shardwright.core.images import keypoints, masks, outlines
from shardwright.core.images.boxes import (
    Box,
    BoxFault,
    are_upright,
    bad_annotation,
    check_box,
    normalized,
    place_box,
    turn,
    upright_size,
)
from shardwright.core.images.convert import Frame
from shardwright.core.images.keypoints import Keypoint
from shardwright.schemas.annotations import Annotations, ObjectAnnotation, Segmentation
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.feature_roles import KEYPOINT_ROLES, FeatureRole
from shardwright.schemas.image_ref import ImageRef

#: Roles of features -> the flags of an object that fill them.
_FLAGS: Mapping[FeatureRole, str] = {
    FeatureRole.OBJECT_DIFFICULT: "difficult",
    FeatureRole.OBJECT_TRUNCATED: "truncated",
    FeatureRole.OBJECT_OCCLUDED: "occluded",
    FeatureRole.OBJECT_GROUP_OF: "group_of",
    FeatureRole.OBJECT_DEPICTION: "depiction",
}


@dataclass
class ObjectCounts:
    """The outcomes of an image's objects or segments.

    Attributes:
      counts: Numbers of objects that were written, clipped, removed by a crop, dropped as bad, or not listed.
      message: What is wrong with the first dropped object.
    """

    counts: Counter[str] = field(default_factory=Counter)
    message: str = ""

    def drop(self, message: str) -> None:
        """Counts an object that is dropped as bad."""
        self.counts["dropped"] += 1
        self.message = self.message or message


class _Bad(Exception):
    """An object that cannot be used; its message says why."""


class _Object(NamedTuple):
    """An object, as a record stores it.

    Attributes:
      annotation: Its annotation in the source.
      box: Its box, as shares of the stored picture.
      area: Its area in square pixels of the stored picture.
      mask: Its mask for the stored picture, as a PNG; None if the source has none.
      points: Its key points in the stored picture.
    """

    annotation: ObjectAnnotation
    box: Box
    area: float
    mask: bytes | None
    points: Sequence[Keypoint] = ()


@dataclass(frozen=True)
class AnnotatedSource:
    """The annotations of an image, with everything that maps them to the stored image.

    Attributes:
      annotations: Annotations of the image.
      ref: Reference of the image.
      frame: The steps from the source image to the stored image.
      settings: Checked settings.
      ids: Class name -> id.
    """

    annotations: Annotations
    ref: ImageRef
    frame: Frame
    settings: ConvertSettings
    ids: Mapping[str, int]


@dataclass(frozen=True)
class _Task:
    """The data that all objects of an image share.

    Attributes:
      source: The image with its annotations.
      upright: Whether the annotations are for the upright picture.
      wants_masks: Whether the layout has a feature for the masks of objects.
      point_names: Names of the key points of each object; none if the layout does not store them.
    """

    source: AnnotatedSource
    upright: bool
    wants_masks: bool
    point_names: tuple[str, ...] = ()

    @property
    def frame(self) -> Frame:
        """The steps from the source image to the stored image."""
        return self.source.frame

    @property
    def relative(self) -> bool:
        """Whether boxes and outlines are shares of width and height."""
        return self.source.annotations.relative

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture that the annotations are for."""
        return upright_size(self.frame) if self.upright else self.frame.size


def _text(value: str) -> bytes:
    return value.encode("utf-8", "replace")


def object_values(source: AnnotatedSource, object_counts: ObjectCounts) -> dict[FeatureRole, Sequence[Any]]:
    """Returns the values of the features that have one value per object.

    Args:
      source: The image with its annotations.
      object_counts: Counts, which are increased.

    Raises:
      ImageFault: If an object is bad and the settings say that its image fails, or the size does not fit.
      EngineError: If the storage failed while a mask was read.
    """
    annotations, frame = source.annotations, source.frame
    roles = source.settings.record_layout.by_role().keys()
    stores_points = not roles.isdisjoint((*KEYPOINT_ROLES, FeatureRole.KEYPOINT_NUM))
    point_names = annotations.keypoint_names if stores_points else ()
    task = _Task(source, are_upright(annotations, frame), FeatureRole.OBJECT_MASK in roles, point_names)
    objects = [
        found
        for i, item in enumerate(annotations.objects or ())
        if (found := _object(i, item, task, object_counts))
    ]
    object_counts.counts["written"] += len(objects)
    values: dict[FeatureRole, Sequence[Any]] = {
        FeatureRole.BOX_XMIN: [item.box[0] for item in objects],
        FeatureRole.BOX_YMIN: [item.box[1] for item in objects],
        FeatureRole.BOX_XMAX: [item.box[2] for item in objects],
        FeatureRole.BOX_YMAX: [item.box[3] for item in objects],
        FeatureRole.BOXES: [item.box[side] for item in objects for side in (1, 0, 3, 2)],
        FeatureRole.OBJECT_LABEL: [source.ids[item.annotation.label] for item in objects],
        FeatureRole.OBJECT_TEXT: [_text(item.annotation.label) for item in objects],
        FeatureRole.OBJECT_CROWD: [int(bool(item.annotation.crowd)) for item in objects],
        FeatureRole.OBJECT_AREA: [item.area for item in objects],
    }
    for role, name in _FLAGS.items():
        flags = [getattr(item.annotation, name) for item in objects]
        if any(flag is not None for flag in flags):
            values[role] = [int(bool(flag)) for flag in flags]
    if any(item.annotation.view is not None for item in objects):
        values[FeatureRole.OBJECT_VIEW] = [_text(item.annotation.view or "") for item in objects]
    values |= keypoints.keypoint_values([item.points for item in objects], point_names)
    found_masks = [item.mask for item in objects]
    if any(found_masks):
        empty = b"" if all(found_masks) else masks.encode_object_mask(Image.new("L", frame.geometry.canvas))
        values[FeatureRole.OBJECT_MASK] = [mask or empty for mask in found_masks]
    return values


def _object(
    number: int, annotation: ObjectAnnotation, task: _Task, object_counts: ObjectCounts
) -> _Object | None:
    """Maps an object to the stored picture; if it is bad or cropped away, counts it and returns None.

    Raises:
      ImageFault: If the object is bad, and the settings say that its image fails.
    """
    policy = task.source.settings.bad_boxes
    try:
        if not annotation.label:
            raise _Bad("it has no category")
        if annotation.label not in task.source.ids:
            raise _Bad(f"its category {annotation.label!r} is not among the class names")
        outline = _outline(annotation, task)
        points = _points(annotation, task)
        box = check_box(_box_of(annotation, outline, task), task.size)
        if isinstance(box, BoxFault):
            if policy != "clip" or box.clipped is None:
                raise _Bad(box.message)
            placed = _placed(annotation, box.clipped, outline, task, object_counts, was_clipped=True)
        else:
            placed = _placed(annotation, box, outline, task, object_counts)
        if placed is None or not task.point_names:
            return placed
        if outside := keypoints.outside_problem(points, task.point_names, task.size):
            object_counts.message = object_counts.message or f"object {number}: {outside}"
        found = keypoints.place_keypoints(points, task.frame, task.size, task.upright, object_counts.counts)
        return placed._replace(points=found)
    except _Bad as bad:
        if policy == "fail":
            raise bad_annotation(f"object {number}: {bad}") from None
        object_counts.drop(f"object {number}: {bad}")
        return None


def _points(annotation: ObjectAnnotation, task: _Task) -> list[Keypoint]:
    """Returns the key points of an object in pixels."""
    names = task.point_names
    try:
        points = keypoints.read_keypoints(
            annotation.keypoints if names else None, names, task.size, task.relative
        )
    except ValueError as error:
        raise _Bad(str(error)) from None
    outside = keypoints.outside_problem(points, names, task.size)
    if outside and task.source.settings.bad_boxes == "fail":
        raise _Bad(outside)
    return points


def _outline(annotation: ObjectAnnotation, task: _Task) -> Segmentation | None:
    """Returns the outline of an object in pixels, if it is needed."""
    if not annotation.segmentation or (annotation.box is not None and not task.wants_masks):
        return None
    try:
        return (
            outlines.scaled(annotation.segmentation, task.size) if task.relative else annotation.segmentation
        )
    except ValueError as error:
        raise _Bad(str(error)) from None


def _box_of(annotation: ObjectAnnotation, outline: Segmentation | None, task: _Task) -> Box:
    """Returns the box of an object in pixels: its own, or the one around its outline."""
    width, height = task.size
    if annotation.box is not None:
        scale = (width, height, width, height) if task.relative else (1, 1, 1, 1)
        return _four(side * factor for side, factor in zip(annotation.box, scale))
    try:
        hull = outlines.hull(outline, task.size) if outline is not None else None
    except ValueError as error:
        raise _Bad(str(error)) from None
    if hull is None:
        raise _Bad("it has no box")
    return hull


def _four(sides: Iterable[float]) -> Box:
    try:
        xmin, ymin, xmax, ymax = (float(side) for side in sides)
    except (TypeError, ValueError, OverflowError):
        raise _Bad("its box is not of four numbers") from None
    return xmin, ymin, xmax, ymax


def _placed(
    annotation: ObjectAnnotation,
    box: Box,
    outline: Segmentation | None,
    task: _Task,
    object_counts: ObjectCounts,
    was_clipped: bool = False,
) -> _Object | None:
    """Maps an object with a sound box; returns None if the crop removes it.

    Its area is the area in the source, scaled like the picture, times the share of its mask (or of its box,
    without a mask) that the crop keeps. If the source has no area, it is the area of the box.
    """
    geometry = task.frame.geometry
    turned = box if task.upright else turn(box, task.frame.size, task.frame.orientation)
    placed = place_box(turned, geometry)
    if placed is None:
        object_counts.counts["vanished"] += 1
        return None
    share = placed.share
    drawn = _drawn(annotation, outline, task)
    object_counts.counts["clipped"] += was_clipped or share < 1
    mask = None
    if drawn is not None:
        upright = task.upright if outline is not None else None
        mask = masks.encode_object_mask(masks.place_mask(drawn, task.frame, 0, upright))
        if share < 1:
            share = _share_in_crop(drawn, task, upright)
    x_scale = geometry.size[0] / (geometry.box[2] - geometry.box[0])
    y_scale = geometry.size[1] / (geometry.box[3] - geometry.box[1])
    xmin, ymin, xmax, ymax = placed.box
    area = (xmax - xmin) * (ymax - ymin)
    if annotation.area is not None and annotation.area >= 0:
        width, height = task.size
        area = min(annotation.area, width * height) * x_scale * y_scale * share
    return _Object(annotation, normalized(placed.box, geometry.canvas), area, mask)


def _drawn(annotation: ObjectAnnotation, outline: Segmentation | None, task: _Task) -> Image.Image | None:
    """Returns the mask of an object in the source image, 1 inside and 0 outside; None without a mask."""
    if not task.wants_masks:
        return None
    try:
        if outline is not None:
            return outlines.draw(outline, task.size)
        if annotation.mask_place:
            data = masks.mask_bytes(task.source.ref.uri, annotation.mask_place, task.source.settings)
            found = masks.read_class_ids(data, task.frame, task.source.settings)
            return Image.fromarray((np.asarray(found) != 0).astype(np.uint8))
    except ValueError as error:
        raise _Bad(str(error)) from None
    except ImageFault as fault:
        raise _Bad(f"its mask: {fault.message}") from None
    return None


def _share_in_crop(drawn: Image.Image, task: _Task, upright: bool | None) -> float:
    """Returns the share of a mask's pixels that are inside the part of the picture that is used."""
    whole = masks.turned(drawn, task.frame, upright)
    left, upper, right, lower = (round(side) for side in task.frame.geometry.box)
    pixels = np.asarray(whole)
    inside = int(np.count_nonzero(pixels[upper:lower, left:right]))
    return inside / max(int(np.count_nonzero(pixels)), 1)
