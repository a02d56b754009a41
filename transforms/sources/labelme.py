"""LabelMe: one JSON file for each image, beside the image or in a separate folder."""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from shardwright.schemas.annotations import Annotations, ObjectAnnotation, Segmentation
from shardwright.schemas.byte_range import BASE64, ByteRange
from shardwright.schemas.codes import FilterReason, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.image_ref import ImageRef, is_image, printable
from shardwright.schemas.layouts import Needs
from shardwright.schemas.units import counted
from shardwright.transforms import storage
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.images.pillow_settings import NO_LIMIT, pillow_settings
from shardwright.transforms.sources.annotation_files import (
    AnnotationFault,
    read_annotation_file,
    side_by_side,
)
from shardwright.transforms.sources.class_folders import list_class_folders
from shardwright.transforms.sources.folder_tree import FolderTree
from shardwright.transforms.sources.image_files import (
    MISSING,
    annotated,
    bad_entry,
    below,
    check_folder,
    class_name,
    files_below,
    join,
    key_of,
    number,
)
from shardwright.transforms.sources.input_probe import HEAD_BYTES, InputProbe
from shardwright.transforms.sources.paired_files import NO_FILE
from shardwright.transforms.sources.semantic_masks import split_folders_in, stem_of
from shardwright.transforms.sources.shapes import MIN_CORNERS, Box, ellipse, hull, mask_outline
from shardwright.transforms.sources.source import Context, Input, InputSplit, Source

_SUFFIX = ".json"
#: Large, because a file may embed its image.
_MAX_BYTES = 256 << 20
_FILES_TRIED = 3
_FOLDERS_TRIED = 20
_IMAGE_DATA = re.compile(rb'"imageData"\s*:\s*"([A-Za-z0-9+/=_-]+)"')
_POLYGONS = ("polygon", "oriented_rectangle", "rotation")


class _Document(NamedTuple):
    """Contents of a LabelMe file.

    Attributes:
      path: Path of the file, relative to the input.
      image: Path of the image as written in the file, with `/`.
      embedded: Offset and length of the base64 image in the file; (0, 0) if it embeds none.
      annotations: Annotations of the image; None if they cannot be used.
      fault: Reason why the annotations cannot be used.
    """

    path: str
    image: str
    embedded: tuple[int, int]
    annotations: Annotations | None
    fault: str = ""


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
    corners = _corners(shape.get("points"))
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


def _corners(points: Any) -> list[float]:
    corners = []
    for point in points if isinstance(points, list) else []:
        sides = [number(side) for side in point] if isinstance(point, list) and len(point) == 2 else [None]
        if None in sides:
            raise ValueError(f"its point {str(point)[:60]} is not a pair of numbers")
        corners += [float(side) for side in sides if side is not None]
    if not corners:
        raise ValueError("it has no points")
    return corners


#: Raised by Pillow for an image above its size limit.
_BOMBS = (Image.DecompressionBombError, Image.DecompressionBombWarning)


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


def is_labelme(head: bytes) -> bool:
    """Returns whether a file begins like a LabelMe file."""
    if not head.lstrip().startswith(b"{") or b'"shapes"' not in head:
        return False
    return any(name in head for name in (b'"imagePath"', b'"imageData"', b'"flags"', b'"version"'))


def _holds_labelme(probe: InputProbe) -> bool:
    names = [name for name in probe.files if name.lower().endswith(_SUFFIX) and not name.startswith(".")]
    heads = (storage.read_head(storage.join(probe.path, name), HEAD_BYTES) for name in names[:_FILES_TRIED])
    return any(map(is_labelme, heads))


def _accepts(probe: InputProbe, settings: ConvertSettings) -> bool:
    """Returns whether an input is read as LabelMe; class folders with LabelMe files stay class folders."""
    if settings.record_layout.needs is Needs.LABEL:
        return _holds_labelme(probe)
    return _is_labelme_folder(probe)


def _is_labelme_folder(probe: InputProbe) -> bool:
    """Returns whether a folder, or a folder directly inside it, holds LabelMe files."""
    if probe.is_file:
        return False
    names = [name for name in probe.folders if not name.startswith(".")][:_FOLDERS_TRIED]
    return _holds_labelme(probe) or any(_holds_labelme(probe.inside(name)) for name in names)


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    if settings.image_root:
        check_folder("--image_root", settings.image_root)
    if not _is_labelme_folder(probe):
        raise UsageError(
            f"--input {printable(probe.path)} is not a LabelMe dataset: name the folder with a JSON file "
            "for each image."
        )
    where = f", images in {printable(settings.image_root)}" if settings.image_root else ""
    splits = split_folders_in(probe.path).splits.values()
    shown = f", splits {', '.join(splits)}" if splits else ""
    return f"LabelMe{where}{shown}"


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef]:
    """Yields a reference for every image, and for every LabelMe file without an image."""
    item, settings = part.item, context.settings
    root = item.path.rstrip("/") or "/"
    image_root = settings.image_root.rstrip("/") or root
    tree = split_folders_in(image_root)
    prefix = item.prefix + (key_of(below(f"{image_root}/", root) or "") if image_root != root else "")
    documents = [
        (path, state)
        for path, state in files_below(root)
        if path.lower().endswith(_SUFFIX) and not any(step.startswith(".") for step in path.split("/"))
    ]
    others: dict[str, ImageRef] = {}
    images: dict[str, ImageRef] = {}
    for ref in list_class_folders(Input(image_root, prefix)):
        path = below(ref.uri, image_root) or ref.uri
        ref = ref._replace(label="", split=tree.place(ref.key.removeprefix(prefix))[0])
        if is_image(ref):
            images[path] = ref
        elif (
            path.lower().endswith(_SUFFIX) and image_root == root and ref.reason == FilterReason.NOT_AN_IMAGE
        ):
            others[path] = ref
        else:
            yield ref
    finder = _Finder(images, below(f"{root}/", image_root))
    read = side_by_side(lambda entry: _read(join(root, entry[0]), entry[0]), documents, root)
    states = dict(documents)
    by_image: dict[str, _Document] = {}
    for document in read:
        if document is None:
            continue
        others.pop(document.path, None)
        found = finder.find(document)
        if found and found not in by_image:
            by_image[found] = document
        elif found:
            key = item.prefix + key_of(document.path)
            why = f"{printable(by_image[found].path)} annotates the same image"
            yield bad_entry(key, join(root, document.path), why)
        else:
            yield _without_file(document, item, root, states[document.path], tree)
    yield from others.values()
    for path, ref in images.items():
        if path not in by_image and ref.is_candidate and settings.missing_annotations == "empty":
            yield annotated(ref, Annotations(objects=()))
        elif path not in by_image and ref.is_candidate:
            yield ref.quarantined(QuarantineReason.BAD_ANNOTATION, NO_FILE)
        else:
            yield _referred(ref, by_image[path]) if path in by_image else ref


def _referred(ref: ImageRef, document: _Document) -> ImageRef:
    if not ref.is_candidate:
        return ref
    if document.annotations is None:
        message = f"{printable(document.path)}: {document.fault}"
        return ref.quarantined(QuarantineReason.BAD_ANNOTATION, message)
    return annotated(ref._replace(message=printable(document.path)), document.annotations)


def _without_file(
    document: _Document, item: Input, root: str, state: storage.StoredObject, tree: FolderTree
) -> ImageRef:
    """Returns a reference to the image that a file embeds, or a bad entry if it embeds none."""
    path = join(root, document.path)
    name = document.image.rpartition("/")[2]
    begin, length = document.embedded
    if not length or not name:
        fault = document.fault or f"{MISSING}: {printable(document.image)}"
        return bad_entry(item.prefix + key_of(document.path), path, fault)
    folder = document.path.rpartition("/")[0]
    inner = f"{folder}/{name}" if folder else name
    bytes_at = ByteRange("", begin, length, BASE64, state.size, state.version)
    ref = ImageRef(
        item.prefix + key_of(inner),
        path,
        split=tree.place(inner)[0],
        version=state.version,
        place=bytes_at.encode(),
    )
    return _referred(ref, document)


class _Finder:
    """Finds the images that LabelMe files describe.

    Args:
      images: References to images by path, relative to the image folder.
      inner: Path of the folder of the LabelMe files, relative to the image folder. None if it is elsewhere.
    """

    def __init__(self, images: Mapping[str, ImageRef], inner: str | None) -> None:
        self._images = images
        self._inner = inner
        self._stems: dict[str, str] = {}
        self._names: dict[str, str | None] = {}
        for path in images:
            self._stems.setdefault(stem_of(path), path)
            name = path.rpartition("/")[2]
            self._names[name] = None if name in self._names else path

    def find(self, document: _Document) -> str:
        """Returns the path of a file's image; empty if there is none.

        It tries the path in the file, then an image with the same name beside the file, then the only image
        anywhere that has the file name.
        """
        if self._inner is not None:
            folder = posixpath.dirname(posixpath.join(self._inner, document.path))
            text = posixpath.normpath(posixpath.join(folder, document.image)) if document.image else ""
            if text in self._images:
                return text
            beside = self._stems.get(stem_of(posixpath.join(self._inner, document.path)))
            if beside:
                return beside
        return self._names.get(document.image.rpartition("/")[2]) or ""


def _read(path: str, inner: str) -> _Document | None:
    """Returns the contents of a file; None if it is not a LabelMe file."""
    try:
        data = read_annotation_file(path, _MAX_BYTES)
        with UNDERWAY.working_on(path, "parse"):
            parsed = json.loads(data or b"null")
    except AnnotationFault as fault:
        return _Document(inner, "", (0, 0), None, str(fault))
    except (ValueError, RecursionError) as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "it"
        return _Document(inner, "", (0, 0), None, f"{where} is not JSON")
    if not isinstance(parsed, dict) or not isinstance(parsed.get("shapes"), list):
        return None
    named = parsed.get("imagePath")
    image = named.replace("\\", "/") if isinstance(named, str) else ""
    match = _IMAGE_DATA.search(data or b"")
    embedded = (match.start(1), len(match[1])) if match else (0, 0)
    try:
        return _Document(inner, image, embedded, parse_labelme(parsed))
    except AnnotationFault as fault:
        return _Document(inner, image, embedded, None, str(fault))


SOURCE = Source(
    name="labelme",
    provides=frozenset({Needs.OBJECTS}),
    settings=frozenset({"image_root", "missing_annotations"}),
    accepts=_accepts,
    describe=_describe,
    list_part=list_part,
)
