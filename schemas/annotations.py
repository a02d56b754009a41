"""Annotations of an image besides its class, such as boxes and masks, as an `ImageRef` carries them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardwright.schemas.json_values import given_fields

#: Polygons (each x0, y0, x1, y1, ... in the unit of boxes), or COCO's run lengths (`counts`, `size`). What
#: else a source lists makes a bad object if masks are stored, and does not matter otherwise.
Segmentation = Sequence[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class ObjectAnnotation:
    """One object in an image.

    Attributes:
      label: Class name; empty if its category is not known.
      box: xmin, ymin, xmax, ymax; pixels from the upper left corner, or shares of width and height if
        `Annotations.relative` is set. None if the source has no box.
      crowd: Whether it is a group of objects that are not separated (COCO's `iscrowd`).
      area: Area in square pixels from the source; None if the source has none.
      difficult: VOC's flag. Like the flags below, it is None if the source does not state it.
      truncated: Whether it extends beyond the image.
      occluded: Whether something hides a part of it.
      group_of: Whether the box contains several objects (Open Images).
      depiction: Whether it is a drawing or similar (Open Images).
      view: VOC's pose.
      segmentation: Its outline: polygons in pixels or shares, like the box.
      mask_place: Place of a binary mask of the whole picture (`ByteRange.encode()`): an image in which the
        object is not 0. It is in the image's own file unless the place names another file.
      keypoints: x, y and visibility (COCO's 0 not labelled, 1 hidden, 2 visible) of each point in
        `Annotations.keypoint_names`; x and y are in the unit of boxes. None if it has no key points.
    """

    label: str
    box: tuple[float, float, float, float] | None = None
    crowd: bool = False
    area: float | None = None
    difficult: bool | None = None
    truncated: bool | None = None
    occluded: bool | None = None
    group_of: bool | None = None
    depiction: bool | None = None
    view: str | None = None
    segmentation: Segmentation | None = None
    mask_place: str = ""
    keypoints: Sequence[float] | None = None


@dataclass(frozen=True)
class PanopticSegment:
    """One segment of a panoptic mask: its id in the mask, and its class.

    `thing` is true if its class is countable, unlike stuff such as sky (COCO's `isthing`). Only things get
    an instance number. `void` segments are ignored, because their class is not wanted.
    """

    id: int
    label: str
    thing: bool = True
    void: bool = False


@dataclass(frozen=True)
class Annotations:
    """All annotations of one image.

    They apply to the image as stored, before its EXIF orientation is applied, unless only the upright image
    can have the given `size`. The same holds for masks.

    Attributes:
      objects: In the order of the source; None if the source does not describe objects.
      relative: Whether boxes and polygons are shares of width and height instead of pixels.
      size: Width and height in pixels that the source states; None if it states none.
      upright: Whether boxes and polygons are drawn for the upright picture even if both pictures have the
        same size. It does not apply if only the stored picture has the given size.
      captions: Sentences that describe the image.
      semantic_mask: File with the class id of every pixel; empty if there is none.
      panoptic_mask: COCO's PNG with the segment id of every pixel (R + 256 G + 65536 B); empty if there is
        none.
      segments: Segments of the panoptic mask.
      semantic_place: Like `semantic_mask`, if the mask is part of a file (`ByteRange.encode()`; in the
        image's own file unless the place names another file). A source sets only one of the two.
      category_place: Place of an image with the class id of every pixel, 0 for none, in a panoptic record.
        Together with `instance_place` it replaces `panoptic_mask` and `segments`: the ids are stored
        unchanged.
      instance_place: Place of an image with the instance number of every pixel, 0 for none.
      mask_size: Size of the mask's file in bytes when it was listed; -1 if unknown.
      mask_version: The storage's version of the mask's file (`ImageRef.version`). It shows whether the mask
        changed, so that no shard with the old mask is reused.
      keypoint_names: Names of the key points that every object can have, in the order of the record.
    """

    objects: tuple[ObjectAnnotation, ...] | None = None
    relative: bool = False
    size: tuple[int, int] | None = None
    captions: tuple[str, ...] = ()
    upright: bool = False
    semantic_mask: str = ""
    panoptic_mask: str = ""
    segments: tuple[PanopticSegment, ...] = ()
    semantic_place: str = ""
    category_place: str = ""
    instance_place: str = ""
    mask_size: int = -1
    mask_version: str = ""
    keypoint_names: tuple[str, ...] = ()

    @property
    def labels(self) -> set[str]:
        """The class names of the objects and segments."""
        return {item.label for item in self.objects or ()} | {item.label for item in self.segments}

    @property
    def has_mask_parts(self) -> bool:
        """Whether a mask is part of a file, such as a TFRecord."""
        whole = self.semantic_place or self.category_place or self.instance_place
        return bool(whole) or any(item.mask_place for item in self.objects or ())

    @property
    def has_unmarked_mask(self) -> bool:
        """Whether the state of a mask's file is unknown, so that a change cannot be detected."""
        return bool(self.semantic_mask or self.panoptic_mask) and not self.mask_version

    def encode(self) -> str:
        """Returns the annotations as JSON for an `ImageRef`, without default values."""
        value = given_fields(self)
        if self.objects is not None:
            value["objects"] = [given_fields(item, "label") for item in self.objects]
        if self.segments:
            value["segments"] = [given_fields(item, "label") for item in self.segments]
        return json.dumps(value, separators=(",", ":"))


def decode_annotations(text: str) -> Annotations:
    """Reads the result of `Annotations.encode`."""
    value = json.loads(text)
    if "objects" in value:
        value["objects"] = tuple(
            ObjectAnnotation(**{**item, "box": tuple(item["box"])} if "box" in item else item)
            for item in value["objects"]
        )
    for name in ("size", "captions", "keypoint_names"):
        if name in value:
            value[name] = tuple(value[name])
    value["segments"] = tuple(PanopticSegment(**item) for item in value.get("segments", ()))
    return Annotations(**value)
