"""Reads the XML of "CVAT for images 1.1": one file with the shapes and tags of all images."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple
from xml.parsers import expat

import numpy as np

from shardwright.schemas.annotations import Annotations, ObjectAnnotation, Segmentation
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef, printable
from shardwright.schemas.layouts import Needs
from shardwright.schemas.units import counted
from shardwright.transforms import storage
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.sources.annotation_files import AnnotationFault
from shardwright.transforms.sources.file_states import FileStates, with_states
from shardwright.transforms.sources.image_files import (
    annotated,
    bad_entry,
    check_folder,
    class_name,
    find_root,
    inner_path,
    join,
    key_of,
    number_in,
)
from shardwright.transforms.sources.image_lists import (
    MAX_TRIED,
    describe_list,
    find_image_root,
    find_lists,
    names_with,
    placed_lists,
    prefix_of_images,
    prefix_of_lines,
    split_lists,
)
from shardwright.transforms.sources.input_probe import HEAD_BYTES, InputProbe, look_at
from shardwright.transforms.sources.name_hash import name_hash
from shardwright.transforms.sources.shapes import (
    MIN_CORNERS,
    box_and_outline,
    ellipse,
    hull,
    mask_of_runs,
    mask_outline,
    rotated_box,
)
from shardwright.transforms.sources.source import Context, Input, InputSplit, Source
from shardwright.transforms.sources.split_names import split_name

_ROOT, _IMAGE, _TRACK, _TAG = "annotations", "image", "track", "tag"
_SHAPES = ("box", "polygon", "polyline", "points", "ellipse", "cuboid", "mask", "skeleton")
#: Depth of image elements, and of the shapes and tags in them.
_IMAGE_DEPTH, _SHAPE_DEPTH = 2, 3
_MAX_DEPTH = 64
_STEP = 1 << 20
_SUFFIX = ".xml"
_NAMES_TRIED = 5
_FLAGS = {"0": False, "1": True}


class _Shape(NamedTuple):
    """A shape or tag of an image: its name, its line in the file and its attributes."""

    kind: str
    line: int
    attributes: Mapping[str, str]


@dataclass
class CvatImage:
    """An image in a file.

    Attributes:
      line: Line of its element.
      attributes: Attributes of its element.
      shapes: Its shapes and tags.
    """

    line: int
    attributes: Mapping[str, str]
    shapes: list[_Shape] = field(default_factory=list)


class CvatReader:
    """Reads a file piece by piece, so that only a few images are in memory."""

    def __init__(self) -> None:
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = _refuse
        self._parser.EntityDeclHandler = _refuse
        self._depth = 0
        self._image: CvatImage | None = None
        self._found: list[CvatImage] = []
        self.has_tracks = False

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1 and name != _ROOT:
            raise AnnotationFault(f"its XML begins with <{name}> instead of <{_ROOT}>")
        if self._depth > _MAX_DEPTH:
            raise AnnotationFault("its XML is nested too deeply")
        line = self._parser.CurrentLineNumber
        if self._depth == _IMAGE_DEPTH and name == _IMAGE:
            self._image = CvatImage(line, attributes)
        elif self._depth == _IMAGE_DEPTH and name == _TRACK:
            self.has_tracks = True
        elif self._image is not None and self._depth == _SHAPE_DEPTH and name in (*_SHAPES, _TAG):
            self._image.shapes.append(_Shape(name, line, attributes))

    def _end(self, name: str) -> None:
        if self._depth == _IMAGE_DEPTH and self._image is not None:
            self._found.append(self._image)
            self._image = None
        self._depth -= 1

    def feed(self, data: bytes, is_last: bool) -> list[CvatImage]:
        """Returns the images that end in a piece of the file.

        Raises:
          AnnotationFault: if the XML is broken; the message names the line.
        """
        try:
            self._parser.Parse(data, is_last)
        except expat.ExpatError as error:
            what = expat.errors.messages[error.code]
            raise AnnotationFault(f"its XML is broken in line {error.lineno}: {what}") from None
        except (ValueError, LookupError) as error:  # such as an unknown encoding
            raise AnnotationFault(f"its XML cannot be read: {words_of(error)}") from None
        found, self._found = self._found, []
        return found


def _refuse(*_: Any) -> None:
    raise AnnotationFault("its XML declares a document type, which could make it grow without end")


def objects_of(image: CvatImage) -> Annotations:
    """Returns the objects of an image from its shapes.

    Raises:
      AnnotationFault: if a shape cannot be used; the message names its line.
    """
    size = _size(image)
    objects = []
    for shape in image.shapes:
        if shape.kind == _TAG:
            continue
        try:
            box, outline = _drawn(shape, size)
        except ValueError as error:
            raise AnnotationFault(f"the {shape.kind} in line {shape.line}: {error}") from None
        label = class_name(shape.attributes.get("label", ""))
        occluded = _FLAGS.get(shape.attributes.get("occluded", ""))
        objects.append(ObjectAnnotation(label, box, occluded=occluded, segmentation=outline))
    return Annotations(objects=tuple(objects), size=size, upright=True)


def _drawn(
    shape: _Shape, size: tuple[int, int] | None
) -> tuple[tuple[float, float, float, float] | None, Segmentation | None]:
    """Returns the box and the outline of a shape; both are None if it encloses nothing.

    Raises:
      ValueError: if the shape is invalid.
    """
    attributes = shape.attributes
    if shape.kind == "box":
        xmin, ymin, xmax, ymax = _numbers(attributes, ("xtl", "ytl", "xbr", "ybr"))
        box = (xmin, ymin, xmax, ymax)
        degrees = _number(attributes["rotation"], "rotation") if attributes.get("rotation") else 0.0
        if not degrees:
            return box, None
        return box_and_outline(box, rotated_box(box, degrees))
    if shape.kind == "polygon":
        corners = _points(attributes.get("points", ""))
        if len(corners) < 2 * MIN_CORNERS:
            raise ValueError(f"it has {counted(len(corners) // 2, 'corner')}")
        return hull(corners), [corners]
    if shape.kind == "ellipse":
        x, y, x_radius, y_radius = _numbers(attributes, ("cx", "cy", "rx", "ry"))
        degrees = _number(attributes["rotation"], "rotation") if attributes.get("rotation") else 0.0
        box = (x - x_radius, y - y_radius, x + x_radius, y + y_radius)
        return box_and_outline(box, ellipse(x, y, x_radius, y_radius, degrees))
    if shape.kind == "mask":
        left, top, width, height = (
            int(side) for side in _numbers(attributes, ("left", "top", "width", "height"))
        )
        if size is None:
            raise ValueError("its image has no width and height")
        runs = [int(run) for run in attributes.get("rle", "").split(",")]
        mask = mask_of_runs(runs, width, height)
        return (left, top, left + width, top + height), mask_outline(mask, left, top, size)
    if shape.kind == "cuboid":
        names = [f"{axis}{side}{face}" for face in "12" for side in ("tl", "bl", "tr", "br") for axis in "xy"]
        return hull(_numbers(attributes, names)), None
    return None, None


def _numbers(values: Mapping[str, str], names: Sequence[str]) -> list[float]:
    return [_number(values.get(name, ""), name) for name in names]


def _number(text: str, name: str) -> float:
    value = number_in(text)
    if value is None:
        raise ValueError(f"{name} is {text!r}, which is not a number")
    return value


def _points(text: str) -> list[float]:
    corners = []
    for pair in filter(None, text.split(";")):
        sides = pair.split(",")
        if len(sides) != 2:
            raise ValueError(f"its point {pair[:60]!r} is not a pair of numbers")
        corners += [_number(side, "a side of a point") for side in sides]
    return corners


def _size(image: CvatImage) -> tuple[int, int] | None:
    try:
        width, height = (int(image.attributes.get(name, "0")) for name in ("width", "height"))
    except ValueError:
        raise AnnotationFault(f"the width or height in line {image.line} is not a number") from None
    return (width, height) if width > 0 and height > 0 else None


class CvatFile(NamedTuple):
    """A file of CVAT.

    Attributes:
      path: Path of the file.
      key: Path relative to the input.
      root: Folder that the names of its images are relative to.
      by_subset: Whether images are in folders named like their subsets.
      split: Split from its name or folder; empty if it is the only one.
    """

    path: str
    key: str
    root: str
    by_subset: bool
    split: str


def _name_of(image: CvatImage, by_subset: bool) -> str:
    """Returns the path of an image below the root; empty if it cannot be one."""
    name = inner_path(image.attributes.get("name", "").replace("\\", "/"))
    subset = inner_path(image.attributes.get("subset", ""))
    return f"{subset}/{name}" if name and by_subset and subset else name


def _first_images(head: bytes) -> list[CvatImage]:
    """Returns the images that end in the first bytes of a file."""
    reader = CvatReader()
    try:
        return reader.feed(head, False)
    except AnnotationFault:
        return []


def is_cvat(head: bytes) -> bool:
    """Returns whether a file begins like CVAT's XML."""
    begin = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return (
        begin.startswith(b"<") and b"<annotations" in head[:4096] and (b"<image" in head or b"<meta" in head)
    )


def _files_in(probe: InputProbe, tried: int | None = None) -> list[str]:
    if probe.is_file:
        return [""] if probe.name.lower().endswith(_SUFFIX) and is_cvat(probe.head) else []
    return find_lists(probe, _names_in, tried)


def _names_in(probe: InputProbe, tried: int | None) -> list[str]:
    return names_with(probe, _SUFFIX, tried, lambda path: is_cvat(storage.read_head(path, HEAD_BYTES)))


def _find_files(probe: InputProbe, settings: ConvertSettings) -> list[CvatFile]:
    names = _files_in(probe)
    if not names:
        raise UsageError(
            f"--input {printable(probe.path)} holds no CVAT XML file; export the task as 'CVAT for images "
            "1.1' and name annotations.xml or its folder."
        )
    return [_file(path, key, split, settings) for path, key, split in placed_lists(probe, names)]


def _file(path: str, key: str, split: str, settings: ConvertSettings) -> CvatFile:
    with storage.translated_errors("read", path):
        head = storage.read_head(path, HEAD_BYTES)
    images = _first_images(head)
    shown = printable(path)
    if b"<track" in head and b"<image" not in head:
        raise UsageError(
            f"--input {shown} is an export of 'CVAT for video'; export the task as 'CVAT for images 1.1'."
        )
    tagged = any(shape.kind == _TAG for image in images for shape in image.shapes)
    if settings.record_layout.needs is Needs.LABEL and images and not tagged:
        raise UsageError(
            f"--layout {settings.record_layout.name}: the first images of {shown} have no tags to use as "
            "classes; choose --layout detection."
        )
    for by_subset in (False, True):
        named = dict.fromkeys(_name_of(image, by_subset) for image in images)
        names = [name for name in named if name][:_NAMES_TRIED]
        named_root = [settings.image_root.rstrip("/") or "/"] if settings.image_root else []
        root = find_root(named_root, names) if named_root else find_image_root(path, names, "")
        if root:
            return CvatFile(path, key, root, by_subset, split)
    if names and not settings.image_root:
        raise UsageError(
            f"--input {shown}: {printable(names[0])} is neither beside it nor in images/; name "
            "the folder of its images with --image_root."
        )
    folder = path.rpartition("/")[0] or "."
    return CvatFile(path, key, settings.image_root.rstrip("/") or folder, False, split)


def _describe(probe: InputProbe, settings: ConvertSettings) -> str:
    if settings.image_root:
        check_folder("--image_root", settings.image_root)
    files = _find_files(probe, settings)
    what = "tags" if settings.record_layout.needs is Needs.LABEL else "shapes"
    return f"CVAT for images, {what}: {'; '.join(map(describe_list, files))}"


def split(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields one input split for each file."""
    yield from split_lists(item, _find_files(look_at(item.path), context.settings))


def list_part(part: InputSplit, context: Context) -> Iterator[ImageRef]:
    """Yields a reference for each image that a file names."""
    file = CvatFile(*json.loads(part.detail))
    settings = context.settings
    prefix, row_key = prefix_of_images(part, file.root, context), prefix_of_lines(part, file.key)
    with storage.translated_errors("read", file.path), storage.open_local(file.path) as opened:
        repeated = _repeated(opened, file)
        refs = (
            _ref(image, file, prefix, row_key, repeated, settings) for image in _images(opened, file.path)
        )
        state = storage.stat(file.path)
        count = max((state.size if state else 0) // 500, 1)
        yield from with_states(refs, FileStates(file.root, count), file.root)


def _repeated(opened: IO[bytes], file: CvatFile) -> dict[str, list[int]]:
    """Returns name -> lines for the images that a file lists more than once."""

    def names() -> Iterator[tuple[str, int]]:
        for image in _images(opened, file.path):
            if name := _name_of(image, file.by_subset):
                yield key_of(name), image.line

    hashes = np.sort(np.fromiter((name_hash(name) for name, _ in names()), np.uint64))
    twice = frozenset(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
    lines: dict[str, list[int]] = {}
    for name, line in names() if twice else ():
        if name_hash(name) in twice:
            lines.setdefault(name, []).append(line)
    return {name: found for name, found in lines.items() if len(found) > 1}


def _images(opened: IO[bytes], path: str) -> Iterator[CvatImage]:
    opened.seek(0)
    reader = CvatReader()
    try:
        while data := opened.read(_STEP):
            UNDERWAY.progress()
            yield from reader.feed(data, False)
        yield from reader.feed(b"", True)
    except AnnotationFault as fault:
        raise UsageError(f"--input {printable(path)}: {fault}; export it again.") from None
    if reader.has_tracks:
        raise UsageError(
            f"--input {printable(path)} has tracks of a video; export the task as 'CVAT for images 1.1'."
        )


def _ref(
    image: CvatImage,
    file: CvatFile,
    prefix: str,
    row_key: str,
    repeated: Mapping[str, Sequence[int]],
    settings: ConvertSettings,
) -> ImageRef:
    name = _name_of(image, file.by_subset)
    message = f"line {image.line} of {printable(file.key)}"
    if not name:
        why = f"the name {image.attributes.get('name', '')!r} in line {image.line} is not the name of a file"
        return bad_entry(f"{row_key}{image.line}", file.path, why)
    lines = repeated.get(key_of(name), ())
    if lines and image.line != lines[0]:
        return bad_entry(f"{row_key}{image.line}", file.path, f"line {lines[0]} lists the same image")
    ref = ImageRef(prefix + key_of(name), join(file.root, name), split=file.split, message=message)
    try:
        if lines:
            raise AnnotationFault(f"lines {lines[0]} and {lines[1]} both list it")
        if image.attributes.get("subset"):
            ref = ref._replace(split=_split(image.attributes["subset"]))
        if settings.record_layout.needs is Needs.LABEL:
            return ref._replace(label=_label(image, settings))
        return annotated(ref, objects_of(image))
    except AnnotationFault as fault:
        return ref.quarantined(QuarantineReason.BAD_ANNOTATION, f"{printable(file.key)}: {fault}")


def _split(subset: str) -> str:
    try:
        found = split_name(subset)
    except ValueError as error:
        raise AnnotationFault(str(error)) from None
    return "" if found == "default" else found  # CVAT's name for images without a subset


def _label(image: CvatImage, settings: ConvertSettings) -> str:
    """Returns the class of an image: its tag, or all its tags if several classes are allowed."""
    tags = (class_name(shape.attributes.get("label", "")) for shape in image.shapes if shape.kind == _TAG)
    names = list(dict.fromkeys(filter(None, tags)))
    if len(names) > 1 and not settings.label_separator:
        raise AnnotationFault(
            f"the image in line {image.line} has several tags ({', '.join(names[:3])}); --label_separator "
            "'|' lets an image have several classes"
        )
    return LABEL_SEPARATOR.join(names)


SOURCE = Source(
    name="cvat",
    provides=frozenset({Needs.OBJECTS, Needs.LABEL}),
    settings=frozenset({"image_root", "label_separator"}),
    accepts=lambda probe, settings: bool(_files_in(probe, MAX_TRIED)),
    describe=_describe,
    list_part=list_part,
    split=split,
    names_images=True,
)
