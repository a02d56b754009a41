"""LabelMe: one JSON file for each image, beside the image or in a separate folder."""

from __future__ import annotations

import base64
import binascii
import math
import posixpath
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from shardwright.core import storage
from shardwright.core.images import decode
from shardwright.core.sources import shapes
from shardwright.core.sources.annotation_files import AnnotationFault, faults_in, parse_json
from shardwright.core.sources.image_files import annotated, bad_entry, class_name, file_name, key_of
from shardwright.core.sources.input_probe import HEAD_BYTES, InputProbe
from shardwright.core.sources.pairs import PairedFolders, PairFormat, holds_below
from shardwright.schemas.annotations import Annotations, ObjectAnnotation, Segmentation
from shardwright.schemas.byte_range import BASE64, ByteRange
from shardwright.schemas.codes import FilterReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault, words_of
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import counted

#: Large, because a file may embed its image.
_MAX_BYTES = 256 << 20
_IMAGE_DATA = re.compile(rb'"imageData"\s*:\s*"([A-Za-z0-9+/=_-]+)"')
#: Numbers of points that a shape may have.
_POINTS: Mapping[str, tuple[int, ...]] = {"rectangle": (2, 4), "circle": (2,)}
_POLYGONS = ("polygon", "oriented_rectangle", "rotation")


def parse_labelme(values: Any) -> Annotations:
    """Returns the annotations in a LabelMe file; outlines of one class and group are one object.

    Raises:
      AnnotationFault: If a shape cannot be used; the message names the shape.
    """
    if not _is_labelme(values):
        raise AnnotationFault("it has no list of shapes")
    size = shapes.size_of(values, ("imageWidth", "imageHeight"))
    objects: dict[Any, ObjectAnnotation] = {}
    for place, shape in enumerate(values["shapes"]):
        with faults_in(f"shape {place}"):
            item = _object(shape, size)
        group = shape.get("group_id")
        is_part = isinstance(group, int) and isinstance(item.segmentation, list)
        key = (item.label, group) if is_part else place
        objects[key] = _merge(objects[key], item) if key in objects else item
    return Annotations(objects=tuple(objects.values()), size=size, upright=True)


def _is_labelme(values: Any) -> bool:
    return isinstance(values, dict) and isinstance(values.get("shapes"), list)


def _object(shape: Any, size: tuple[int, int] | None) -> ObjectAnnotation:
    """Returns a shape as an object; points and lines enclose no area and get no box.

    Raises:
      ValueError: If the shape is wrong; the message says why.
    """
    if not isinstance(shape, dict):
        raise ValueError("it is not an object")
    kind = shape.get("shape_type") or "polygon"
    corners = shapes.corners_of(shape.get("points"))
    if not corners:
        raise ValueError("it has no points")
    points = len(corners) // 2
    if points not in _POINTS.get(kind, (points,)):
        raise ValueError(f"a {kind} with {counted(points, 'point')}")
    box: shapes.Box | None = None
    outline: Segmentation | None = None
    if kind == "rectangle":
        box = shapes.hull(corners)
    elif kind in _POLYGONS:
        box, outline = shapes.polygon(corners)
    elif kind == "circle":
        x, y, edge_x, edge_y = corners
        radius = math.hypot(edge_x - x, edge_y - y)
        box, outline = shapes.ellipse(x, y, radius, radius)
    elif kind == "mask":
        box = shapes.hull(corners)
        outline = _mask(shape.get("mask"), corners, size)
    difficult = shape.get("difficult")
    return ObjectAnnotation(
        class_name(shape.get("label")),
        box,
        difficult=difficult if isinstance(difficult, bool) else None,
        segmentation=outline,
    )


def _mask(data: Any, corners: list[float], size: tuple[int, int] | None) -> Segmentation:
    if not isinstance(data, str) or size is None:
        raise ValueError("its mask or the size of the image is missing")
    try:
        opened = decode.open_image(base64.b64decode(data, validate=True), "mask.png", shapes.MAX_PIXELS)
        if opened.image.width > size[0] + 1 or opened.image.height > size[1] + 1:
            raise ValueError("its mask is larger than the image")
        mask = np.asarray(decode.load_checked(opened, shapes.MAX_PIXELS).image.convert("L"))
    except (ImageFault, binascii.Error) as error:
        raise ValueError(f"its mask cannot be read: {words_of(error)}") from None
    return shapes.mask_outline(mask, round(corners[0]), round(corners[1]), size)


def _merge(first: ObjectAnnotation, second: ObjectAnnotation) -> ObjectAnnotation:
    """Returns two parts of an object as one."""
    parts = [part.segmentation for part in (first, second) if isinstance(part.segmentation, list)]
    box = shapes.hull([*(first.box or ()), *(second.box or ())])
    return replace(first, box=box, segmentation=[corners for part in parts for corners in part])


def _image_of(values: Any) -> str:
    """Returns the name of the image that a JSON file states; empty if it states none."""
    named = values.get("imagePath") if _is_labelme(values) else None
    return file_name(named) if isinstance(named, str) else ""


def _alone(ref: ImageRef, data: bytes) -> ImageRef:
    """Returns the image that a file without an image embeds, or what else the file is."""
    values = parse_json(data)
    if not _is_labelme(values):
        return ref.filtered(FilterReason.NOT_AN_IMAGE)
    name, match = _image_of(values), _IMAGE_DATA.search(data)
    if not name or not match:
        why = f"its image {printable(name)} is missing or has another annotation file"
        return bad_entry(ref.key, ref.uri, why)
    place = ByteRange("", match.start(1), len(match[1]), BASE64, ref.size, ref.version)
    key = posixpath.join(posixpath.dirname(ref.key), key_of(name))
    ref = ref._replace(key=key, size=-1, place=place.encode(), message="")
    return annotated(ref, parse_labelme(values))


def _begins_like_labelme(path: str) -> bool:
    """Returns whether a file begins like a LabelMe file."""
    head = storage.read_head(path, HEAD_BYTES)
    if not head.lstrip().startswith(b"{") or b'"shapes"' not in head:
        return False
    return any(name in head for name in (b'"imagePath"', b'"imageData"', b'"flags"', b'"version"'))


def _find(probe: InputProbe, settings: ConvertSettings) -> list[PairedFolders]:
    if not holds_below(probe, ".json", _begins_like_labelme, settings):
        return []
    images = settings.image_root.rstrip("/") or probe.root
    return [PairedFolders(images, probe.root, (".json",), split_by_folder=True)]


SOURCE = PairFormat(
    name="labelme",
    title="LabelMe",
    expected="name the folder with a JSON file for each image",
    find=_find,
    parse=lambda data, folders: parse_labelme(parse_json(data)),
    settings=frozenset({"image_root", "missing_annotations"}),
    named_images=lambda data: list(filter(None, [_image_of(parse_json(data))])),
    alone=_alone,
    max_bytes=_MAX_BYTES,
).source()
