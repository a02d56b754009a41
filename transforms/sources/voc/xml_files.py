"""Reads Pascal VOC's XML, one file for each image, with a parser that refuses entities."""

from __future__ import annotations

import math
from typing import Any
from xml.parsers import expat

from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.errors import words_of
from shardwright.transforms.sources.annotation_files import AnnotationFault
from shardwright.transforms.sources.image_files import class_name, is_text
from shardwright.transforms.sources.moved_files import file_name

_ROOT = "annotation"
_OBJECT = (_ROOT, "object")
_MAX_DEPTH = 64
_IMAGE_NAMES = ("filename", "path")
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_FLAGS = {"0": False, "1": True, "false": False, "true": True}


class _Reader:
    """Collects the texts of the size, the image names and the objects; parts of objects are ignored."""

    def __init__(self) -> None:
        self.path: list[str] = []
        self.text: list[str] = []
        self.size: dict[str, str] = {}
        self.image: dict[str, str] = {}
        self.objects: list[dict[str, str]] = []

    def start(self, name: str, attributes: Any) -> None:
        if not self.path and name != _ROOT:
            raise AnnotationFault(f"the root of its XML is <{name}> instead of <{_ROOT}>")
        self.path.append(name)
        if len(self.path) > _MAX_DEPTH:
            raise AnnotationFault("its XML is nested too deeply")
        self.text.clear()
        if tuple(self.path) == _OBJECT:
            self.objects.append({})

    def data(self, text: str) -> None:
        self.text.append(text)

    def end(self, name: str) -> None:
        text = "".join(self.text).strip()
        self.text.clear()
        inner = tuple(self.path[1:])
        self.path.pop()
        if len(inner) == 2 and inner[0] == "size":
            self.size.setdefault(inner[1], text)
        elif len(inner) == 1 and inner[0] in _IMAGE_NAMES:
            self.image.setdefault(inner[0], text)
        elif len(inner) == 2 and inner[0] == "object":
            self.objects[-1].setdefault(inner[1], text)
        elif len(inner) == 3 and inner[:2] == ("object", "bndbox"):
            self.objects[-1].setdefault(f"bndbox/{inner[2]}", text)


def _refuse(*_: Any) -> None:
    raise AnnotationFault("its XML declares a document type, which could make it grow without end")


def parse_voc(data: bytes) -> Annotations:
    """Returns the annotations in an XML file.

    Raises:
      AnnotationFault: If the XML is broken; the message names the line.
    """
    reader = _read(data)
    return Annotations(objects=tuple(_object(item) for item in reader.objects), size=_size(reader.size))


def named_images(data: bytes) -> list[str]:
    """Returns the file names of the image in an XML file, the likeliest first; none if the XML is broken."""
    try:
        fields = _read(data).image
    except AnnotationFault:
        return []
    names = (file_name(fields.get(name, "")) for name in _IMAGE_NAMES)
    return [name for name in dict.fromkeys(names) if name]


def _read(data: bytes) -> _Reader:
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.data
    parser.StartDoctypeDeclHandler = _refuse
    parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise AnnotationFault(
            f"its XML is broken in line {error.lineno}: {expat.errors.messages[error.code]}"
        ) from None
    except (ValueError, LookupError) as error:  # an unknown encoding
        raise AnnotationFault(f"its XML cannot be read: {words_of(error)}") from None
    return reader


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _size(fields: dict[str, str]) -> tuple[int, int] | None:
    """Returns width and height; None if they are missing, or 0 as some tools write."""
    sides = []
    for name in ("width", "height"):
        text = fields.get(name, "")
        side = _number(text) if text else 0.0
        if not math.isfinite(side) or side != int(side):
            raise AnnotationFault(f"its {name} is {text!r}")
        sides.append(int(side))
    return (sides[0], sides[1]) if min(sides) > 0 else None


def _object(fields: dict[str, str]) -> ObjectAnnotation:
    """Returns an object.

    Its box is kept as written, as in most tools, although VOC's own coordinates count from 1.
    """
    xmin, ymin, xmax, ymax = (_number(fields.get(f"bndbox/{side}", "")) for side in _SIDES)
    pose = fields.get("pose", "")
    return ObjectAnnotation(
        label=class_name(fields.get("name", "")),
        box=(xmin, ymin, xmax, ymax),
        difficult=_FLAGS.get(fields.get("difficult", "").lower()),
        truncated=_FLAGS.get(fields.get("truncated", "").lower()),
        occluded=_FLAGS.get(fields.get("occluded", fields.get("occlusion", "")).lower()),
        view=pose if is_text(pose) else None,
    )
