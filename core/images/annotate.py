"""Maps boxes and masks from the source image to the stored image."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardwright.core.images import masks
from shardwright.core.images.boxes import bad_annotation
from shardwright.core.images.convert import ConvertedImage, Reserve
from shardwright.core.images.objects import AnnotatedSource, ObjectCounts, object_values
from shardwright.schemas.annotations import Annotations, decode_annotations
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.feature_roles import KEYPOINT_ROLES, OBJECT_ROLES
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef
from shardwright.schemas.layouts import FeatureRole, Needs

_PANOPTIC = (FeatureRole.PANOPTIC_CATEGORY, FeatureRole.PANOPTIC_INSTANCE)


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


#: The largest segment id that three channels of 8 bits can hold.
_MAX_SEGMENT = 0xFFFFFF
#: Bytes per pixel while a mask is decoded, rotated and converted to ids.
_WORKING_BYTES = 12
#: Class id and instance number of an unknown segment.
_NOT_KNOWN = (0, 0)


def read_mask(ref: ImageRef, settings: ConvertSettings) -> bytes | None:
    """Reads the mask of an image; returns None if the layout needs no mask or the source names none.

    Raises:
      ImageFault: If the mask is missing, forbidden or too large.
      EngineError: If the mask changed since it was listed, or the storage failed.
    """
    roles = settings.record_layout.by_role().keys()
    if not ref.annotations or roles.isdisjoint((FeatureRole.SEMANTIC_MASK, *_PANOPTIC)):
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
    reserve: Reserve | None = None,
) -> Annotated:
    """Returns the annotations of an image that the layout stores, mapped to its stored picture.

    Args:
      ref: Reference that holds the annotations.
      image: The stored picture, with the steps that made it from the source.
      settings: Checked settings.
      ids: Class name -> id.
      mask: What `read_mask` returned.
      reserve: Function that reserves working memory for masks; takes a number of bytes.

    Raises:
      ImageFault: If an annotation is bad and `bad_boxes` says that its image fails, or a mask cannot be used.
      EngineError: If the storage failed while a mask was read.
    """
    annotations = decode_annotations(ref.annotations) if ref.annotations else Annotations()
    source = AnnotatedSource(annotations, ref, image.frame, settings, ids)
    has_masks = (
        annotations.has_mask_parts
        or annotations.semantic_mask
        or annotations.panoptic_mask
        or any(item.segmentation is not None for item in annotations.objects or ())
    )
    working_bytes = math.prod(image.frame.size) * _WORKING_BYTES
    with reserve(working_bytes) if reserve and has_masks else contextlib.nullcontext():
        return _values_of(source, mask)


def _values_of(source: AnnotatedSource, mask: bytes | None) -> Annotated:
    annotations, roles = source.annotations, source.roles
    values: dict[FeatureRole, Sequence[Any]] = {}
    object_counts = ObjectCounts()
    if not roles.isdisjoint((*OBJECT_ROLES, *KEYPOINT_ROLES, FeatureRole.BOXES)):
        values |= object_values(source, object_counts)
    if annotations.captions:
        values[FeatureRole.CAPTION] = [caption.encode("utf-8", "replace") for caption in annotations.captions]
    if FeatureRole.SEMANTIC_MASK in roles:
        values |= _semantic_values(source, mask)
    if not roles.isdisjoint(_PANOPTIC):
        values |= _panoptic_values(source, object_counts, mask)
    stored = {role: items for role, items in values.items() if role in roles}
    counts = {name: count for name, count in object_counts.counts.items() if count}
    label = None
    if FeatureRole.OBJECT_TEXT in values:
        label = LABEL_SEPARATOR.join(sorted({text.decode() for text in values[FeatureRole.OBJECT_TEXT]}))
    return Annotated(stored, counts or None, object_counts.message, label)


def _no_mask(settings: ConvertSettings, role: FeatureRole) -> dict[FeatureRole, Sequence[Any]]:
    """Returns the values of an image without a mask.

    Raises:
      ImageFault: If the settings do not keep images without a mask.
    """
    if settings.unlabelled == "keep" or settings.record_layout.by_role()[role].optional:
        return {}
    raise bad_annotation("there is no mask for it")


def _semantic_values(source: AnnotatedSource, data: bytes | None) -> dict[FeatureRole, Sequence[Any]]:
    annotations = source.annotations
    if data is None or not (annotations.semantic_mask or annotations.semantic_place):
        return _no_mask(source.settings, FeatureRole.SEMANTIC_MASK)
    with masks.faults_of_mask(annotations.semantic_mask or source.ref.uri):
        mask = masks.read_class_ids(data, source.frame, source.settings)
    encoded = masks.encode_mask(masks.place_class_ids(mask, source.frame))
    return {FeatureRole.SEMANTIC_MASK: [encoded], FeatureRole.SEMANTIC_FORMAT: [b"png"]}


def _panoptic_values(
    source: AnnotatedSource, object_counts: ObjectCounts, data: bytes | None
) -> dict[FeatureRole, Sequence[Any]]:
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
    values_of = _values_of_segments(source, object_counts)
    # Beside boxes, the counts of segments have names of their own.
    prefix = "segments_" if settings.record_layout.needs is Needs.OBJECTS else ""
    category, instance = _paint(
        np.asarray(masks.place_mask(mask, frame)), values_of, object_counts.counts, prefix
    )
    return {
        FeatureRole.PANOPTIC_CATEGORY: [masks.encode_mask(masks.narrow(category))],
        FeatureRole.PANOPTIC_INSTANCE: [masks.encode_mask(masks.narrow(instance))],
    }


def _place_part(place: str, source: AnnotatedSource) -> bytes:
    """Reads a mask that is part of a file, and maps it to the stored picture."""
    uri = source.ref.uri
    with masks.faults_of_mask(uri):
        data = masks.mask_bytes(uri, place, source.settings)
        mask = masks.read_class_ids(data, source.frame, source.settings)
    return masks.encode_mask(masks.place_mask(mask, source.frame))


def _values_of_segments(source: AnnotatedSource, object_counts: ObjectCounts) -> dict[int, tuple[int, int]]:
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
            raise bad_annotation(message)
        object_counts.drop(message)
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
