"""Converts the rows of a table with a row for each image to references.

A row may have the `objects` column of Hugging Face's imagefolder: lists of boxes and categories.
"""

from __future__ import annotations

import ast
import contextlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from shardwright.core import storage
from shardwright.core.sources import image_files
from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.file_states import ImageRoot, local_state
from shardwright.core.sources.source import Context, InputPart
from shardwright.core.sources.tables.columns import HEIGHT, ML_USE, OBJECT_CLASSES, OBJECTS, ROLES, WIDTH
from shardwright.core.sources.tables.files import Table, rows_of
from shardwright.core.sources.tables.parquet import KINDS, EmbeddedImage
from shardwright.core.sources.tables.texts import Row
from shardwright.schemas.annotations import Annotations, ObjectAnnotation
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.columns import column_values, encode_extra
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import LABEL_SEPARATOR, NO_SPLIT, ImageRef, key_from_bytes
from shardwright.schemas.labels import MAX_OWN_ID, UNLABELLED, ClassId
from shardwright.schemas.layouts import Needs
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import counted

_SHA256 = re.compile(r"[0-9a-fA-F]{64}\Z")
#: Settings that `Rows` uses, out of those that only some sources use.
SETTINGS = frozenset(
    (*(f"{role}_column" for role in ROLES), "image_root", "extra_columns", "label_separator")
)
#: Matches a number in its only spelling; other spellings are names.
_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,6})\Z")
#: Separator of the values of a list in a cell, unless --label_separator sets another.
_LIST_SEPARATOR = "|"
#: Number of characters of a value in a message.
_MAX_CHARACTERS = 200
#: Google's names of splits. `training` becomes `train`, because rows without a split are hashed to `train`.
_ML_USES = {"training": "train", "validate": "validation"}


def with_class_ids(items: Iterable[tuple[ImageRef, bool]]) -> Iterator[ImageRef | ClassId]:
    """Yields references in order, and each class that is a whole number once, with this number as its id.

    Args:
      items: The references, and whether numbers are ids in each of them.
    """
    yielded: set[str] = set()
    for ref, has_ids in items:
        for name in ref.labels if has_ids else ():
            # 7.0 is not a class number but a measurement that is used as a class.
            if name not in yielded and _NUMBER.match(name) and int(name) <= MAX_OWN_ID:
                yielded.add(name)
                yield ClassId(name, int(name))
        yield ref


def list_rows(part: InputPart, context: Context) -> Iterator[ImageRef | ClassId]:
    """Yields a reference for every row of a part of a table, and the ids of its classes."""
    table, place = part.detail
    rows = rows_of(table, place, context.settings, context.spool)
    refs = Rows(table, part.item.prefix, context.settings).refs(rows)
    yield from with_class_ids((ref, not table.classes) for ref in refs)
    yield from map(ClassId, table.classes, range(len(table.classes)))


class Rows:
    """Converts the rows of one table to references.

    Args:
      table: The table.
      prefix: Prefix of the keys of its input.
      settings: Settings of the conversion.
    """

    def __init__(self, table: Table, prefix: str, settings: ConvertSettings) -> None:
        self._table, self._settings = table, settings
        self._needs = settings.record_layout.needs
        self._images = ImageRoot(table.root)
        self._prefix = prefix + table.prefix
        name = table.file.path.rpartition("/")[2]
        self._row = f"{printable(name)}, {'row' if table.kind in KINDS else 'line'} "
        self._own_key = self._prefix + key_from_bytes(name.encode("utf-8", "surrogateescape"))

    def refs(self, rows: Iterable[Row]) -> Iterator[ImageRef]:
        """Yields a reference for each row. Missing images come last, because one search finds all of them."""
        missing: list[tuple[int, Mapping[str, Any], ImageRef]] = []
        for line, row in rows:
            ref = self._ref(line, row)
            # The image is missing, or has a path with backslashes in remote storage.
            may_have_moved = ref.reason == QuarantineReason.UNREADABLE and not os.path.lexists(ref.uri)
            if ref.is_candidate and not ref.place:
                may_have_moved = storage.is_remote(ref.uri) and "\\" in ref.uri
            if not isinstance(row, str) and may_have_moved:
                missing.append((line, row, ref))
            else:
                yield ref
        image = self._table.names[0]
        moved = image_files.find_moved((_path(row[image]) for _, row, _ in missing), self._table.root or ".")
        for line, row, ref in missing:
            path, fault = moved.get(_path(row[image]), ("", ""))
            if path:
                ref = self._ref(line, {**row, image: path})
            elif fault:
                ref = ref.quarantined(QuarantineReason.UNREADABLE, f"{self._row}{line}: {fault}")
            yield ref

    def _ref(self, line: int, row: Mapping[str, Any] | str) -> ImageRef:
        """Returns the reference of a row, which may be a message about what is wrong with it."""
        ref: ImageRef | None = None
        reason: str = QuarantineReason.BAD_ROW
        try:
            if isinstance(row, str):
                raise AnnotationFault(row)
            image, label, split, group, sha256 = map(row.get, self._table.names)
            if isinstance(image, EmbeddedImage | AnnotationFault):
                ref = ImageRef(f"{self._own_key}!{line:06d}", self._table.file.path)
            else:
                key, uri = self._images.find(_path(image))
                ref = ImageRef(self._prefix + key, uri)
            ref = ref._replace(message=f"{self._row}{line}")
            ref = self._with_label(ref, label) if self._needs is Needs.LABEL else ref
            ref = ref._replace(
                split=self._split(split),
                group=_text(group, "group"),
                sha256=_sha256(sha256),
                extra=self._extra_values(row) if self._settings.parsed_extra_columns else "",
            )
            if isinstance(image, AnnotationFault):
                raise image
            if isinstance(image, EmbeddedImage):
                ref = ref._replace(size=image.size, version=image.version, place=image.place.encode())
            elif not storage.is_remote(ref.uri):  # only a request would tell the state of an object
                uri, byte_count, version = local_state(ref.uri)
                ref = ref._replace(uri=uri, size=byte_count, version=version)
            if self._needs is not Needs.OBJECTS:
                return ref
            reason = QuarantineReason.BAD_ANNOTATION
            size = row.get(WIDTH), row.get(HEIGHT)
            return image_files.annotated(ref, objects_of(row.get(OBJECTS), size, self._table.classes))
        except AnnotationFault as fault:
            ref = ref or ImageRef(f"{self._own_key}:{line}", self._table.file.path, split=NO_SPLIT)
            return ref.quarantined(fault.reason or reason, f"{self._row}{line}: {fault}")

    def _with_label(self, ref: ImageRef, value: Any) -> ImageRef:
        """Returns a reference with the classes of its row."""
        several = isinstance(value, list | tuple)
        values = value if several else [value]
        if several and any(isinstance(item, list | tuple | dict) for item in values):
            raise AnnotationFault("its class is not text, a number or a list of them")
        names = [self._class(item) for item in values]
        if self._settings.label_separator and not several:
            names = names[0].split(self._settings.label_separator)
        names = list(dict.fromkeys(filter(None, map(str.strip, names))))
        if any(LABEL_SEPARATOR in name for name in names):
            raise AnnotationFault("its class holds the control character 0x1F")
        return image_files.labelled(ref, names, "classes", self._settings)

    def _class(self, value: Any) -> str:
        """Returns the class that a value names; empty if it is missing."""
        classes = self._table.classes
        if not classes or type(value) is not int:
            return _text(value, "class")
        if value == UNLABELLED:
            return ""
        if value not in range(len(classes)):
            raise AnnotationFault(f"its class {value} is not one of 0 to {len(classes) - 1}")
        return classes[value]

    def _split(self, value: Any) -> str:
        split = image_files.split_in(_text(value, "split")) or self._table.split
        has_ml_use = self._table.names[2].lower().endswith(ML_USE)
        return _ML_USES.get(split, split) if has_ml_use else split

    def _extra_values(self, row: Mapping[str, Any]) -> str:
        columns = self._settings.parsed_extra_columns
        separator = self._settings.label_separator or _LIST_SEPARATOR
        try:
            values = {item.name: column_values(item, row.get(item.name), separator) for item in columns}
            return encode_extra(values)
        except ValueError as error:
            raise AnnotationFault(printable(str(error))[:_MAX_CHARACTERS]) from None


def _path(value: Any) -> str:
    if value is None or value == "":
        raise AnnotationFault("it names no image")
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    raise AnnotationFault(f"its image is not a path but {type(value).__name__}")


def _text(value: Any, what: str) -> str:
    """Returns a value as text; empty if it is missing."""
    if isinstance(value, list | tuple | dict):
        raise AnnotationFault(f"its {what} is not text or a number")
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    text = str(value).lower() if isinstance(value, bool) else str(value).strip()
    try:
        text.encode()
    except UnicodeEncodeError:
        raise AnnotationFault(f"its {what} is not UTF-8; save the file as UTF-8") from None
    return text


def _sha256(value: Any) -> str:
    text = _text(value, "sha256")
    if text and not _SHA256.match(text):
        raise AnnotationFault(f"its sha256 is not 64 hexadecimal digits but {text[:80]!r}")
    return text.lower()


_BOXES = ("bbox", "bboxes", "boxes")
_OUTLINES = ("segmentation", "segmentations")
_AREAS = ("area", "areas")
_CROWDS = ("iscrowd", "is_crowd")


def objects_of(value: Any, size: Sequence[Any] = (), class_names: Sequence[str] = ()) -> Annotations:
    """Returns the annotations in the `objects` of a row, with boxes of x, y, width and height in pixels.

    Args:
      value: Mapping of `bbox`, `categories` and similar names to lists, or a list of objects, or either as
        text.
      size: Width and height of the image; empty or None if the row has none.
      class_names: Names of the classes whose numbers the objects have; empty if they have names.

    Raises:
      AnnotationFault: If the objects are wrong; the message says why.
    """
    columns = _columns(_parse_objects(value))
    boxes, classes = _first(columns, _BOXES), _first(columns, OBJECT_CLASSES)
    if boxes is None or classes is None:
        missing = "bbox" if boxes is None else "categories"
        raise AnnotationFault(f"its objects have no {missing}")
    if len(boxes) != len(classes):
        several = f"{counted(len(boxes), 'box')} and {counted(len(classes), 'category')}"
        raise AnnotationFault(f"its objects have {several}")
    rows = [_box(place, box) for place, box in enumerate(boxes)]
    _check_pixels(rows)
    others = (chain(_first(columns, names) or (), repeat(None)) for names in (_OUTLINES, _AREAS, _CROWDS))
    objects = [
        ObjectAnnotation(
            _label(value, class_names),
            (left, top, left + width, top + height),
            crowd=bool(crowd),
            area=image_files.number(area),
            segmentation=outline or None if isinstance(outline, list | Mapping) else None,
        )
        for (left, top, width, height), value, outline, area, crowd in zip(rows, classes, *others)
    ]
    sides = [
        image_files.number_in(side) if isinstance(side, str) else image_files.number(side) for side in size
    ]
    whole = [int(side) for side in sides if side is not None and side >= 1]
    return Annotations(objects=tuple(objects), size=(whole[0], whole[1]) if len(whole) == 2 else None)


def _parse_objects(value: Any) -> Any:
    """Returns the objects in a CSV cell, which are written as JSON or as Python literals."""
    if not isinstance(value, str) or not value.strip():
        return value
    for parse in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return parse(value)
    raise AnnotationFault("its objects are not JSON")


def _columns(value: Any) -> Mapping[str, Sequence[Any]]:
    """Returns a mapping of name to the list of the values of all objects."""
    if isinstance(value, Mapping):
        return {name: values for name, values in value.items() if isinstance(values, list | tuple)}
    if isinstance(value, list | tuple) and all(isinstance(item, Mapping) for item in value):
        names = {name for item in value for name in item}
        columns = {name: [item.get(name) for item in value] for name in names}
        return columns if value else {_BOXES[0]: [], OBJECT_CLASSES[0]: []}
    raise AnnotationFault(
        "it has no objects" if value in (None, "") else "its objects are neither lists nor a list"
    )


def _first(columns: Mapping[str, Sequence[Any]], names: Sequence[str]) -> Sequence[Any] | None:
    return next((columns[name] for name in names if name in columns), None)


def _box(place: int, box: Any) -> tuple[float, float, float, float]:
    sides = [image_files.number(side) for side in box] if isinstance(box, list | tuple) else []
    if len(sides) != 4 or None in sides:
        raise AnnotationFault(f"the bbox of object {place} is {str(box)[:80]} instead of x, y, width, height")
    left, top, width, height = (float(side) for side in sides if side is not None)
    return left, top, width, height


def _check_pixels(boxes: Sequence[Sequence[float]]) -> None:
    """Checks that boxes are not relative to the image size.

    Raises:
      AnnotationFault: If they are relative; the format has pixels only.
    """
    sides = [side for box in boxes for side in box]
    if sides and all(0 <= side <= 1 for side in sides) and any(side != int(side) for side in sides):
        raise AnnotationFault(
            "its boxes are shares of the image; bbox must be x, y, width and height in pixels"
        )


def _label(value: Any, class_names: Sequence[str]) -> str:
    """Returns the name of a class; empty for a number without one."""
    if isinstance(value, bool) or not isinstance(value, int):
        return image_files.class_name(value)
    if not class_names:
        return str(value)
    return class_names[value] if value in range(len(class_names)) else ""
