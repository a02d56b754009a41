"""Maps objects, with boxes, outlines and key points, from the source image to the stored image."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from shardwright.core.images import masks
from shardwright.core.images.boxes import (
    BadObject,
    Box,
    Keypoint,
    are_upright,
    bad_annotation,
    check_box,
    normalized,
    outside_problem,
    place_box,
    place_keypoints,
    read_keypoints,
    turn,
    upright_size,
)
from shardwright.core.images.geometry import Frame
from shardwright.schemas.annotations import Annotations, ObjectAnnotation, Segmentation
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.feature_roles import FLAGS, KEYPOINT_ROLES, FeatureRole
from shardwright.schemas.image_ref import ImageRef


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
    points: Sequence[Keypoint]


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

    @cached_property
    def roles(self) -> frozenset[FeatureRole]:
        """Roles of the features that the layout stores."""
        return frozenset(self.settings.record_layout.by_role())

    @cached_property
    def point_names(self) -> tuple[str, ...]:
        """Names of the key points of each object; none if the layout does not store them."""
        stores_points = not self.roles.isdisjoint((*KEYPOINT_ROLES, FeatureRole.KEYPOINT_NUM))
        return self.annotations.keypoint_names if stores_points else ()

    @cached_property
    def upright(self) -> bool:
        """Whether objects are described for the upright picture (`are_upright`)."""
        return are_upright(self.annotations, self.frame)

    @cached_property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture that objects are described for."""
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
    are_upright(source.annotations, source.frame)  # checks the stated size of an image without objects, too
    numbered = enumerate(source.annotations.objects or ())
    mapped = (_object(index, annotation, source, object_counts) for index, annotation in numbered)
    objects = [item for item in mapped if item]
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
    for name, role in FLAGS.items():
        flags = [getattr(item.annotation, name) for item in objects]
        if any(flag is not None for flag in flags):
            values[role] = [int(bool(flag)) for flag in flags]
    if any(item.annotation.view is not None for item in objects):
        values[FeatureRole.OBJECT_VIEW] = [_text(item.annotation.view or "") for item in objects]
    points = [point for item in objects for point in item.points]
    values[FeatureRole.KEYPOINT_X] = [point.x for point in points]
    values[FeatureRole.KEYPOINT_Y] = [point.y for point in points]
    values[FeatureRole.KEYPOINT_VISIBILITY] = [point.visibility for point in points]
    values[FeatureRole.KEYPOINT_TEXT] = [_text(name) for name in source.point_names] * len(objects)
    values[FeatureRole.KEYPOINT_NUM] = [
        sum(point.visibility > 0 for point in item.points) for item in objects
    ]
    object_masks = [item.mask for item in objects]
    if any(object_masks):
        empty = Image.new("L", source.frame.geometry.canvas)
        values[FeatureRole.OBJECT_MASK] = [mask or masks.encode_object_mask(empty) for mask in object_masks]
    return values


def _object(
    index: int, annotation: ObjectAnnotation, source: AnnotatedSource, object_counts: ObjectCounts
) -> _Object | None:
    """Maps an object to the stored picture; if it is bad or cropped away, counts it and returns None.

    Its area is the area in the source, scaled like the picture, times the share of its mask (or of its box,
    without a mask) that the crop keeps. If the source has no area, it is the area of the box.

    Raises:
      ImageFault: If the object is bad, and the settings say that its image fails.
    """
    policy, frame, size = source.settings.bad_boxes, source.frame, source.size
    names, relative, geometry = source.point_names, source.annotations.relative, frame.geometry
    try:
        if not annotation.label:
            raise BadObject("it has no category")
        if annotation.label not in source.ids:
            raise BadObject(f"its category {annotation.label!r} is not among the class names")
        outline = _outline(annotation, source)
        points = read_keypoints(annotation.keypoints if names else None, names, size, relative)
        outside = outside_problem(points, names, size)
        if outside and policy == "fail":
            raise BadObject(outside)
        box, is_beyond = check_box(_box_of(annotation, outline, source), size, policy == "clip")
        placed = place_box(box if source.upright else turn(box, frame.size, frame.orientation), geometry)
        if placed is None:
            object_counts.counts["vanished"] += 1
            return None
        drawn = _draw(annotation, outline, source)
    except BadObject as bad:
        if policy == "fail":
            raise bad_annotation(f"object {index}: {bad}") from None
        object_counts.drop(f"object {index}: {bad}")
        return None
    (xmin, ymin, xmax, ymax), share = placed
    object_counts.counts["clipped"] += is_beyond or share < 1
    mask = None
    if drawn is not None:
        upright = source.upright if outline is not None else None
        mask = masks.encode_object_mask(masks.place_mask(drawn, frame, 0, upright))
        if share < 1:
            left, upper, right, lower = (round(side) for side in geometry.box)
            whole = np.asarray(masks.turned(drawn, frame, upright))
            inside = int(np.count_nonzero(whole[upper:lower, left:right]))
            share = inside / max(int(np.count_nonzero(whole)), 1)
    area = (xmax - xmin) * (ymax - ymin)
    if annotation.area is not None and annotation.area >= 0:
        x_scale = geometry.size[0] / (geometry.box[2] - geometry.box[0])
        y_scale = geometry.size[1] / (geometry.box[3] - geometry.box[1])
        area = min(annotation.area, math.prod(size)) * x_scale * y_scale * share
    if outside:
        object_counts.message = object_counts.message or f"object {index}: {outside}"
    points = place_keypoints(points, frame, size, source.upright, object_counts.counts)
    return _Object(annotation, normalized(placed[0], geometry.canvas), area, mask, points)


def _outline(annotation: ObjectAnnotation, source: AnnotatedSource) -> Segmentation | None:
    """Returns the outline of an object in pixels, if it is needed."""
    outline = annotation.segmentation
    if not outline or (annotation.box is not None and FeatureRole.OBJECT_MASK not in source.roles):
        return None
    return masks.scaled_outline(outline, source.size) if source.annotations.relative else outline


def _box_of(annotation: ObjectAnnotation, outline: Segmentation | None, source: AnnotatedSource) -> Box:
    """Returns the box of an object in pixels: its own, or the one around its outline."""
    if annotation.box is None:
        hull = masks.outline_box(outline, source.size) if outline is not None else None
        if hull is None:
            raise BadObject("it has no box")
        return hull
    width, height = source.size if source.annotations.relative else (1, 1)
    try:
        xmin, ymin, xmax, ymax = map(float, annotation.box)
    except (TypeError, ValueError, OverflowError):
        raise BadObject("its box is not of four numbers") from None
    return xmin * width, ymin * height, xmax * width, ymax * height


def _draw(
    annotation: ObjectAnnotation, outline: Segmentation | None, source: AnnotatedSource
) -> Image.Image | None:
    """Returns the mask of an object in the source image, 1 inside and 0 outside; None without a mask."""
    if FeatureRole.OBJECT_MASK not in source.roles:
        return None
    if outline is not None:
        return masks.draw_outline(outline, source.size)
    if not annotation.mask_place:
        return None
    try:
        data = masks.mask_bytes(source.ref.uri, annotation.mask_place, source.settings)
        mask = masks.read_class_ids(data, source.frame, source.settings)
    except ImageFault as fault:
        raise BadObject(f"its mask: {fault.message}") from None
    return Image.fromarray((np.asarray(mask) != 0).astype(np.uint8))
