"""Maps boxes, outlines, key points and masks from the source image to the stored image."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from shardwright.core.concurrency.thread_pool import reserve_working_bytes
from shardwright.core.images import boxes, masks
from shardwright.core.images.convert import ConvertedImage
from shardwright.core.images.geometry import Frame
from shardwright.schemas.annotations import Annotations, ObjectAnnotation, Segmentation, decode_annotations
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.feature_roles import FLAGS, KEYPOINT_ROLES, OBJECT_ROLES, PIXEL_MASKS
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef
from shardwright.schemas.layouts import FeatureRole, Needs

_PANOPTIC = (FeatureRole.PANOPTIC_CATEGORY, FeatureRole.PANOPTIC_INSTANCE)
#: The largest segment id that three channels of 8 bits can hold.
_MAX_SEGMENT = 0xFFFFFF
#: Bytes per pixel while a mask is decoded, rotated and converted to ids.
_WORKING_BYTES = 12
#: Class id and instance number of an unknown segment.
_NOT_KNOWN = (0, 0)


@dataclass(frozen=True)
class Annotated:
    """The annotations of one image, as its record stores them.

    Attributes:
      values: Feature name -> its values; features for which the source has no data are absent.
      counts: Numbers of boxes (or segments) that were written, clipped by a crop, removed by a crop, or
        dropped as bad, and of segments that are in the mask but not listed by the source.
      message: What is wrong with the first dropped box or segment; empty if none was dropped.
      label: Class names of the written objects (as `ImageRef.label`); None without objects.
    """

    values: Mapping[FeatureRole, Sequence[Any]] = field(default_factory=dict)
    counts: Mapping[str, int] | None = None
    message: str = ""
    label: str | None = None


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
    box: boxes.Box
    area: float
    mask: bytes | None
    points: Sequence[boxes.Keypoint]


@dataclass
class _AnnotatedSource:
    """The annotations of an image, with everything that maps them to the stored image, and the outcomes.

    Attributes:
      annotations: Annotations of the image.
      ref: Reference of the image.
      frame: The steps from the source image to the stored image.
      settings: Checked settings.
      ids: Class name -> id.
      counts: Numbers of objects or segments that were written, clipped, removed by a crop, dropped as bad, or
        not listed; they increase while objects are mapped.
      message: What is wrong with the first dropped object.
    """

    annotations: Annotations
    ref: ImageRef
    frame: Frame
    settings: ConvertSettings
    ids: Mapping[str, int]
    counts: Counter[str] = field(default_factory=Counter)
    message: str = ""

    def drop(self, message: str) -> None:
        """Counts an object that is dropped as bad."""
        self.counts["dropped"] += 1
        self.message = self.message or message

    @cached_property
    def roles(self) -> frozenset[FeatureRole]:
        """Roles of the features that the layout stores."""
        return frozenset(self.settings.record_layout.by_role)

    @cached_property
    def point_names(self) -> tuple[str, ...]:
        """Names of the key points of each object; none if the layout does not store them."""
        stores_points = not self.roles.isdisjoint((*KEYPOINT_ROLES, FeatureRole.KEYPOINT_NUM))
        return self.annotations.keypoint_names if stores_points else ()

    @cached_property
    def upright(self) -> bool:
        """Whether objects are described for the upright picture (`are_upright`)."""
        return boxes.are_upright(self.annotations, self.frame)

    @cached_property
    def size(self) -> tuple[int, int]:
        """Width and height of the picture that objects are described for."""
        return boxes.upright_size(self.frame) if self.upright else self.frame.size


def read_mask(ref: ImageRef, settings: ConvertSettings) -> bytes | None:
    """Reads the mask of an image; returns None if the layout needs no mask or the source names none.

    Raises:
      ImageFault: If the mask is missing, forbidden or too large.
      EngineError: If the mask changed since it was listed, or the storage failed.
    """
    roles = settings.record_layout.by_role.keys()
    if not ref.annotations or roles.isdisjoint(PIXEL_MASKS):
        return None
    annotations = decode_annotations(ref.annotations)
    if annotations.panoptic_mask and not roles.isdisjoint(_PANOPTIC):
        uri, place = annotations.panoptic_mask, ""
    elif annotations.semantic_mask or annotations.semantic_place:
        uri, place = annotations.semantic_mask or ref.uri, annotations.semantic_place
    else:
        return None
    with masks.faults_of_mask(uri):
        return masks.mask_bytes(uri, place, settings, annotations.mask_size, annotations.mask_version)


def annotate(
    ref: ImageRef,
    image: ConvertedImage,
    settings: ConvertSettings,
    ids: Mapping[str, int],
    mask: bytes | None = None,
    has_memory: bool = False,
) -> Annotated:
    """Returns the annotations of an image that the layout stores, mapped to its stored picture.

    Args:
      ref: Reference that holds the annotations.
      image: The stored picture, with the steps that made it from the source.
      settings: Checked settings.
      ids: Class name -> id.
      mask: What `read_mask` returned.
      has_memory: Whether the caller holds working memory that suffices for masks.

    Raises:
      ImageFault: If an annotation is bad and `bad_boxes` says that its image fails, or a mask cannot be used.
      EngineError: If the storage failed while a mask was read.
    """
    annotations = decode_annotations(ref.annotations) if ref.annotations else Annotations()
    source = _AnnotatedSource(annotations, ref, image.frame, settings, ids)
    has_masks = (
        annotations.has_mask_parts
        or annotations.semantic_mask
        or annotations.panoptic_mask
        or any(item.segmentation is not None for item in annotations.objects or ())
    )
    needed = 0 if has_memory or not has_masks else math.prod(image.frame.size) * _WORKING_BYTES
    roles = source.roles
    values: dict[FeatureRole, Sequence[Any]] = {}
    with reserve_working_bytes(needed):
        if not roles.isdisjoint((*OBJECT_ROLES, *KEYPOINT_ROLES, FeatureRole.BOXES)):
            values |= _object_values(source)
        if annotations.captions:
            values[FeatureRole.CAPTION] = [_text(caption) for caption in annotations.captions]
        if FeatureRole.SEMANTIC_MASK in roles:
            values |= _semantic_values(source, mask)
        if not roles.isdisjoint(_PANOPTIC):
            values |= _panoptic_values(source, mask)
    stored = {role: items for role, items in values.items() if role in roles}
    counts = {name: count for name, count in source.counts.items() if count}
    label = None
    if FeatureRole.OBJECT_TEXT in values:
        label = LABEL_SEPARATOR.join(sorted({text.decode() for text in values[FeatureRole.OBJECT_TEXT]}))
    return Annotated(stored, counts or None, source.message, label)


def _no_mask(settings: ConvertSettings, role: FeatureRole) -> dict[FeatureRole, Sequence[Any]]:
    """Returns the values of an image without a mask.

    Raises:
      ImageFault: If the settings do not keep images without a mask.
    """
    if settings.unlabelled == "keep" or settings.record_layout.by_role[role].optional:
        return {}
    raise boxes.bad_annotation("there is no mask for it")


def _semantic_values(source: _AnnotatedSource, data: bytes | None) -> dict[FeatureRole, Sequence[Any]]:
    annotations = source.annotations
    if data is None or not (annotations.semantic_mask or annotations.semantic_place):
        return _no_mask(source.settings, FeatureRole.SEMANTIC_MASK)
    with masks.faults_of_mask(annotations.semantic_mask or source.ref.uri):
        mask = masks.read_class_ids(data, source.frame, source.settings)
    padding = masks.HIGHEST[mask.mode != "L"]
    encoded = masks.encode_mask(masks.place_mask(mask, source.frame, padding))
    return {FeatureRole.SEMANTIC_MASK: [encoded], FeatureRole.SEMANTIC_FORMAT: [b"png"]}


def _panoptic_values(source: _AnnotatedSource, data: bytes | None) -> dict[FeatureRole, Sequence[Any]]:
    annotations, frame, settings = source.annotations, source.frame, source.settings
    if annotations.category_place and annotations.instance_place:
        return {
            FeatureRole.PANOPTIC_CATEGORY: [_place_part(annotations.category_place, source)],
            FeatureRole.PANOPTIC_INSTANCE: [_place_part(annotations.instance_place, source)],
        }
    if data is None or not annotations.panoptic_mask:
        return _no_mask(settings, next(role for role in _PANOPTIC if role in source.roles))
    with masks.faults_of_mask(annotations.panoptic_mask):
        mask = masks.read_segments(data, frame, settings)
    values_of = _values_of_segments(source)
    # Beside boxes, the counts of segments have names of their own.
    prefix = "segments_" if settings.record_layout.needs is Needs.OBJECTS else ""
    category, instance = _paint(np.asarray(masks.place_mask(mask, frame)), values_of, source.counts, prefix)
    return {
        FeatureRole.PANOPTIC_CATEGORY: [masks.encode_mask(masks.narrow(category))],
        FeatureRole.PANOPTIC_INSTANCE: [masks.encode_mask(masks.narrow(instance))],
    }


def _place_part(place: str, source: _AnnotatedSource) -> bytes:
    """Reads a mask that is part of a file, and maps it to the stored picture."""
    uri = source.ref.uri
    with masks.faults_of_mask(uri):
        data = masks.mask_bytes(uri, place, source.settings)
        mask = masks.read_class_ids(data, source.frame, source.settings)
    return masks.encode_mask(masks.place_mask(mask, source.frame))


def _values_of_segments(source: _AnnotatedSource) -> dict[int, tuple[int, int]]:
    """Returns segment id -> (class id, instance number).

    The instance number is the segment's position, from 1, or 0 for stuff.

    Raises:
      ImageFault: If a segment has no category, and the settings say that its image fails.
    """
    values_of: dict[int, tuple[int, int]] = {}
    for position, segment in enumerate(source.annotations.segments, 1):
        possible = 0 <= segment.id <= _MAX_SEGMENT
        if segment.label in source.ids and possible:
            values_of.setdefault(segment.id, (source.ids[segment.label], position if segment.thing else 0))
            continue
        if possible:
            values_of.setdefault(segment.id, _NOT_KNOWN)
        if segment.void:
            continue
        message = f"segment {segment.id}: its category {segment.label!r} is not among the class names"
        if source.settings.bad_boxes == "fail":
            raise boxes.bad_annotation(message)
        source.drop(message)
    return values_of


def _paint(
    segment_ids: np.ndarray, values_of: Mapping[int, tuple[int, int]], counts: Counter[str], prefix: str
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the class id and the instance number of every pixel, and counts the segments.

    Args:
      segment_ids: Segment id of every pixel.
      values_of: Segment id -> class id and instance number.
      counts: Numbers of segments that were written, removed by a crop or not listed, which are increased.
      prefix: Beginning of the names of the first two counts.
    """
    listed = np.array(sorted({0, *values_of}), np.int64)
    table = np.array([values_of.get(int(segment), _NOT_KNOWN) for segment in listed], np.int32)
    places = np.searchsorted(listed, segment_ids).clip(max=len(listed) - 1)
    unknown = listed[places] != segment_ids
    counts["unlisted"] += len(np.unique(segment_ids[unknown]))
    pixels = np.bincount(places[~unknown], minlength=len(listed))
    for place, segment in enumerate(listed):
        if values_of.get(int(segment), _NOT_KNOWN) != _NOT_KNOWN:
            counts[prefix + ("written" if pixels[place] else "vanished")] += 1
    category, instance = table[:, 0][places], table[:, 1][places]
    category[unknown], instance[unknown] = _NOT_KNOWN
    return category, instance


def _text(value: str) -> bytes:
    return value.encode("utf-8", "replace")


def _object_values(source: _AnnotatedSource) -> dict[FeatureRole, Sequence[Any]]:
    """Returns the values of the features that have one value per object.

    Args:
      source: The image with its annotations.

    Raises:
      ImageFault: If an object is bad and the settings say that its image fails, or the size does not fit.
      EngineError: If the storage failed while a mask was read.
    """
    # This checks the stated size of an image without objects, too.
    boxes.are_upright(source.annotations, source.frame)
    numbered = enumerate(source.annotations.objects or ())
    mapped = (_object(index, annotation, source) for index, annotation in numbered)
    objects = [item for item in mapped if item]
    source.counts["written"] += len(objects)
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


def _object(index: int, annotation: ObjectAnnotation, source: _AnnotatedSource) -> _Object | None:
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
            raise boxes.BadObject("it has no category")
        if annotation.label not in source.ids:
            raise boxes.BadObject(f"its category {annotation.label!r} is not among the class names")
        outline = _outline(annotation, source)
        points, outside = boxes.read_keypoints(annotation.keypoints if names else None, names, size, relative)
        if outside and policy == "fail":
            raise boxes.BadObject(outside[0])
        box, is_beyond = boxes.check_box(_box_of(annotation, outline, source), size, policy == "clip")
        placed = boxes.place_box(
            box if source.upright else boxes.turn(box, frame.size, frame.orientation), geometry
        )
        if placed is None:
            source.counts["vanished"] += 1
            return None
        drawn = _draw(annotation, outline, source)
    except boxes.BadObject as bad:
        if policy == "fail":
            raise boxes.bad_annotation(f"object {index}: {bad}") from None
        source.drop(f"object {index}: {bad}")
        return None
    (xmin, ymin, xmax, ymax), share = placed
    source.counts["clipped"] += is_beyond or share < 1
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
        source.message = source.message or f"object {index}: {outside[0]}"
        source.counts["keypoints_outside"] += len(outside)
    points = boxes.place_keypoints(points, frame, source.upright, source.counts)
    return _Object(annotation, boxes.normalized(placed[0], geometry.canvas), area, mask, points)


def _outline(annotation: ObjectAnnotation, source: _AnnotatedSource) -> Segmentation | None:
    """Returns the outline of an object in pixels, if it is needed."""
    outline = annotation.segmentation
    if not outline or (annotation.box is not None and FeatureRole.OBJECT_MASK not in source.roles):
        return None
    return masks.scaled_outline(outline, source.size) if source.annotations.relative else outline


def _box_of(
    annotation: ObjectAnnotation, outline: Segmentation | None, source: _AnnotatedSource
) -> boxes.Box:
    """Returns the box of an object in pixels: its own, or the one around its outline."""
    if annotation.box is None:
        hull = masks.outline_box(outline, source.size) if outline is not None else None
        if hull is None:
            raise boxes.BadObject("it has no box")
        return hull
    width, height = source.size if source.annotations.relative else (1, 1)
    try:
        xmin, ymin, xmax, ymax = map(float, annotation.box)
    except (TypeError, ValueError, OverflowError):
        raise boxes.BadObject("its box is not of four numbers") from None
    return xmin * width, ymin * height, xmax * width, ymax * height


def _draw(
    annotation: ObjectAnnotation, outline: Segmentation | None, source: _AnnotatedSource
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
        raise boxes.BadObject(f"its mask: {fault.message}") from None
    return Image.fromarray((np.asarray(mask) != 0).astype(np.uint8))
