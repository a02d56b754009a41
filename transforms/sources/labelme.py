"""LabelMe: one JSON file for each image, beside the image or in a separate folder."""

from __future__ import annotations

import base64
import binascii
import io
import math
import posixpath
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from shardwright.schemas.annotations import Annotations, ObjectAnnotation, Segmentation
from shardwright.schemas.byte_range import BASE64, ByteRange
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import words_of
from shardwright.schemas.image_ref import printable
from shardwright.schemas.layouts import Needs
from shardwright.schemas.units import counted
from shardwright.transforms import storage
from shardwright.transforms.images.pillow_settings import NO_LIMIT, pillow_settings
from shardwright.transforms.images.signatures import is_image_name
from shardwright.transforms.sources.annotation_files import (
    AnnotationFault,
    parse_json,
    read_annotation_file,
    side_by_side,
)
from shardwright.transforms.sources.files_beside import stem_of
from shardwright.transforms.sources.image_files import (
    MISSING,
    below,
    class_name,
    files_below,
    is_hidden,
    join,
    number,
)
from shardwright.transforms.sources.input_probe import HEAD_BYTES, InputProbe
from shardwright.transforms.sources.pairs import EmbeddedImage, Matches, PairedFolders, PairFormat
from shardwright.transforms.sources.shapes import MIN_CORNERS, Box, corners_of, ellipse, hull, mask_outline

#: Large, because a file may embed its image.
_MAX_BYTES = 256 << 20
_FILES_TRIED, _FOLDERS_TRIED = 3, 20
_IMAGE_DATA = re.compile(rb'"imageData"\s*:\s*"([A-Za-z0-9+/=_-]+)"')
_POLYGONS = ("polygon", "oriented_rectangle", "rotation")
#: Raised by Pillow for an image above its size limit.
_BOMBS = (Image.DecompressionBombError, Image.DecompressionBombWarning)


def parse_labelme(values: Mapping[str, Any]) -> Annotations:
    """Returns the annotations in a LabelMe file.

    Raises:
      AnnotationFault: If a shape cannot be used; the message names the shape.
    """
    sides = [number(values.get(name)) for name in ("imageWidth", "imageHeight")]
    size = None
    if sides[0] and sides[1] and min(sides[0], sides[1]) >= 1:
        size = (int(sides[0]), int(sides[1]))
    objects: list[ObjectAnnotation] = []
    groups: dict[tuple[str, Any], int] = {}
    for count, shape in enumerate(values["shapes"]):
        try:
            found = _object(shape, size)
        except ValueError as error:
            raise AnnotationFault(f"shape {count}: {error}") from None
        group = shape.get("group_id")
        key = (found.label, group)
        if isinstance(group, int) and key in groups:
            merged = _merged(objects[groups[key]], found)
            if merged is not None:
                objects[groups[key]] = merged
                continue
        groups.setdefault(key, len(objects))
        objects.append(found)
    return Annotations(objects=tuple(objects), size=size, upright=True)


def _object(shape: Any, size: tuple[int, int] | None) -> ObjectAnnotation:
    """Returns a shape as an object; points and lines enclose no area and get no box.

    Raises:
      ValueError: If the shape is wrong; the message says why.
    """
    if not isinstance(shape, dict):
        raise ValueError("it is not an object")
    kind = shape.get("shape_type") or "polygon"
    corners = corners_of(shape.get("points"))
    if not corners:
        raise ValueError("it has no points")
    box: Box | None = None
    outline: Segmentation | None = None
    if kind == "rectangle":
        if len(corners) not in (4, 8):
            raise ValueError(f"a rectangle with {counted(len(corners) // 2, 'point')}")
        box = hull(corners)
    elif kind in _POLYGONS:
        if len(corners) < 2 * MIN_CORNERS:
            raise ValueError(f"a polygon with {counted(len(corners) // 2, 'point')}")
        box, outline = hull(corners), [corners]
    elif kind == "circle":
        if len(corners) != 4:
            raise ValueError(f"a circle with {counted(len(corners) // 2, 'point')}")
        x, y, edge_x, edge_y = corners
        radius = math.hypot(edge_x - x, edge_y - y)
        box, outline = (x - radius, y - radius, x + radius, y + radius), [ellipse(x, y, radius, radius)]
    elif kind == "mask":
        box = hull(corners)
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
        png = io.BytesIO(base64.b64decode(data, validate=True))
        with pillow_settings(NO_LIMIT), Image.open(png, formats=("PNG",)) as image:
            if image.width > size[0] + 1 or image.height > size[1] + 1:
                raise ValueError("its mask is larger than the image")
            mask = np.asarray(image.convert("L"))
    except (OSError, binascii.Error, SyntaxError, *_BOMBS) as error:
        raise ValueError(f"its mask cannot be read: {words_of(error)}") from None
    return mask_outline(mask, round(corners[0]), round(corners[1]), size)


def _merged(first: ObjectAnnotation, second: ObjectAnnotation) -> ObjectAnnotation | None:
    """Returns two shapes of a group as one object; None if they are not both polygons."""
    outlines = [first.segmentation, second.segmentation]
    polygons = [polygon for outline in outlines if isinstance(outline, list) for polygon in outline]
    if first.box is None or second.box is None or not all(isinstance(item, list) for item in outlines):
        return None
    box = hull([*first.box, *second.box])
    return ObjectAnnotation(first.label, box, difficult=first.difficult, segmentation=polygons)


class _Header(NamedTuple):
    """What a LabelMe file says about its image.

    Attributes:
      image: Path of the image as written, with `/`.
      embedded: Offset and length of the base64 image in the file; (0, 0) if it embeds none.
      fault: Why the file cannot be read.
    """

    image: str = ""
    embedded: tuple[int, int] = (0, 0)
    fault: str = ""


def _read_header(path: str) -> _Header | None:
    """Returns what a file says about its image; None if it is not a LabelMe file."""
    try:
        data = read_annotation_file(path, _MAX_BYTES) or b"null"
        values = parse_json(data)
    except AnnotationFault as fault:
        return _Header(fault=str(fault))
    if not isinstance(values, dict) or not isinstance(values.get("shapes"), list):
        return None
    named = values.get("imagePath")
    match = _IMAGE_DATA.search(data)
    embedded = (match.start(1), len(match[1])) if match else (0, 0)
    return _Header(named.replace("\\", "/") if isinstance(named, str) else "", embedded)


def _match(folders: PairedFolders, files: Mapping[str, storage.StoredObject], prefix: str) -> Matches:
    """Returns the pairs of a folder.

    It tries the path in the file, then an image with the same name beside the file, then the only image
    anywhere that has the file name. Without an image, the one that the file embeds is used.
    """
    images = {path for path, _ in files_below(folders.images) if is_image_name(path) and not is_hidden(path)}
    stems = {stem_of(path): path for path in sorted(images, reverse=True)}
    names: dict[str, list[str]] = {}
    for path in images:
        names.setdefault(path.rpartition("/")[2], []).append(path)
    inner = below(f"{folders.annotations}/", folders.images)

    def find(file: str, image: str) -> str:
        if inner is not None:
            place = posixpath.join(inner, file)
            path = posixpath.normpath(posixpath.join(posixpath.dirname(place), image)) if image else ""
            if path in images or stem_of(place) in stems:
                return path if path in images else stems[stem_of(place)]
        several = names.get(image.rpartition("/")[2], [])
        return several[0] if len(several) == 1 else ""

    matches = Matches()
    ordered = sorted(files)
    read = side_by_side(
        lambda file: _read_header(join(folders.annotations, file)), ordered, folders.annotations
    )
    for file, header in zip(ordered, read):
        if header is None:
            matches.others.add(file)
            continue
        image, name = find(file, header.image), header.image.rpartition("/")[2]
        begin, length = header.embedded
        if image in matches.files:
            matches.faults[file] = f"{printable(matches.files[image])} annotates the same image"
        elif image:
            matches.files[image] = file
        elif length and name:
            state = files[file]
            place = ByteRange("", begin, length, BASE64, state.size, state.version)
            path = posixpath.join(posixpath.dirname(file), name)
            matches.embedded[file] = EmbeddedImage(path, place.encode())
        else:
            matches.faults[file] = header.fault or f"{MISSING}: {printable(header.image)}"
    return matches


def _parse(data: bytes, folders: PairedFolders) -> Annotations:
    return parse_labelme(parse_json(data))


def _holds_labelme(probe: InputProbe) -> bool:
    names = [name for name in probe.files if name.lower().endswith(".json") and not name.startswith(".")]
    heads = (storage.read_head(storage.join(probe.path, name), HEAD_BYTES) for name in names[:_FILES_TRIED])
    return any(map(_is_labelme, heads))


def _is_labelme(head: bytes) -> bool:
    """Returns whether a file begins like a LabelMe file."""
    if not head.lstrip().startswith(b"{") or b'"shapes"' not in head:
        return False
    return any(name in head for name in (b'"imagePath"', b'"imageData"', b'"flags"', b'"version"'))


def _find(probe: InputProbe, settings: ConvertSettings) -> list[PairedFolders]:
    """Returns the folder if it, or a folder directly inside it, holds LabelMe files."""
    if probe.is_file:
        return []
    inner = [probe.inside(name) for name in probe.folders if not name.startswith(".")][:_FOLDERS_TRIED]
    if not any(map(_holds_labelme, (probe, *inner))):
        return []
    root = probe.path.rstrip("/") or "/"
    images = settings.image_root.rstrip("/") or root
    return [PairedFolders(images, root, (".json",), split_by_folder=True)]


def _recognizes(probe: InputProbe, settings: ConvertSettings) -> bool:
    """Returns whether an input is read as LabelMe; class folders with LabelMe files stay class folders."""
    if settings.record_layout.needs is Needs.LABEL:
        return _holds_labelme(probe)
    return bool(_find(probe, settings))


SOURCE = PairFormat(
    name="labelme",
    title="LabelMe",
    expected="name the folder with a JSON file for each image",
    find=_find,
    recognizes=_recognizes,
    parse=_parse,
    settings=frozenset({"image_root", "missing_annotations"}),
    match=_match,
    max_bytes=_MAX_BYTES,
).source()
