"""Converts the rows of a manifest to references."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.columns import column_values, encode_extra
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import LABEL_SEPARATOR, NO_SPLIT, ImageRef, key_from_bytes, printable
from shardwright.schemas.labels import MAX_OWN_ID, UNLABELLED, ClassId
from shardwright.schemas.layouts import Needs
from shardwright.transforms import storage
from shardwright.transforms.sources.annotation_files import AnnotationFault
from shardwright.transforms.sources.image_files import annotated, join, key_of
from shardwright.transforms.sources.manifest.columns import ROLES, SPLIT_WORDS
from shardwright.transforms.sources.manifest.embedded_image import EmbeddedImage
from shardwright.transforms.sources.manifest.lines import Row
from shardwright.transforms.sources.manifest.objects import objects_of
from shardwright.transforms.sources.manifest.paths import FileFault, ImageRoot, RowFault, state_of
from shardwright.transforms.sources.moved_files import MovedFile, find_moved
from shardwright.transforms.sources.split_names import split_name

_SHA256 = re.compile(r"[0-9a-fA-F]{64}\Z")
#: Settings that `Rows` uses, out of those that only some sources use.
SETTINGS = frozenset(
    {
        "image_root",
        "image_column",
        "label_column",
        "split_column",
        "group_column",
        "sha256_column",
        "extra_columns",
        "label_separator",
    }
)
#: Matches a number in its only spelling; other spellings are names.
_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,6})\Z")
#: Separator of the values of a list in a cell, unless --label_separator sets another.
_LIST_SEPARATOR = "|"
#: Number of characters of a value in a message.
_SHOWN = 200
#: Google's names of splits. `training` becomes `train`, because rows without a split are hashed to `train`.
_ML_USES = {"training": "train", "validate": "validation"}
#: Number of cached labels and splits.
_REMEMBERED = 50_000


class Rows:
    """Converts the rows of one manifest to references.

    Args:
      settings: Settings of the conversion.
      root: Folder to which paths are relative; empty for the working directory.
      prefix: Prefix of keys.
      manifest: Path of the manifest.
      shown: Name of the manifest in messages and in keys of rows without an image.
      unit: Unit in which rows are counted: line or row.
      folder_split: Split of rows that have none.
      ml_use: Whether splits have the names of Google's AutoML and Vertex AI.
      key_folder: Folder that follows the prefix in keys.
      class_names: Names of the classes whose numbers the rows have; empty if rows have names.
      numbers_are_ids: Whether a class that is a number has that number as its id.
    """

    def __init__(
        self,
        settings: ConvertSettings,
        root: str,
        prefix: str,
        manifest: str,
        shown: str,
        unit: str,
        folder_split: str = "",
        ml_use: bool = False,
        key_folder: str = "",
        class_names: Sequence[str] = (),
        numbers_are_ids: bool = True,
    ) -> None:
        self._root = ImageRoot(root)
        self._folder = root or "."
        self._prefix = prefix + key_folder
        self._manifest = manifest
        self._shown = f"{printable(shown)}, {unit} "
        self._own_key = prefix + key_from_bytes(shown.encode("utf-8", "surrogateescape"))
        self._separator = settings.label_separator
        self._extra = settings.parsed_extra_columns
        self._reads_classes = settings.record_layout.needs is not Needs.IMAGE
        self._about_objects = settings.record_layout.needs is Needs.OBJECTS
        self._folder_split = folder_split
        self._ml_uses = _ML_USES if ml_use else {}
        self._class_names = class_names
        self._numbers_are_ids = numbers_are_ids
        self._labels: dict[str, str] = {}
        self._splits: dict[str, str] = {}
        self._ids: set[int] = set()
        self._new_ids: list[int] = []

    def refs(self, rows: Iterable[Row]) -> Iterator[ImageRef | ClassId]:
        """Yields a reference for each row, and the ids of classes that are numbers."""
        # After the first missing image, all rows wait, so that one search finds all missing images.
        waiting: list[tuple[Row, ImageRef, str]] = []
        for row in rows:
            number, values = row
            if isinstance(values, str):
                ref, path = self._without_image(number, values), ""
            else:
                ref = self._ref(number, values)
                path = _path(values[0]) if self._may_have_moved(ref) else ""
            if path or waiting:
                waiting.append((row, ref, path))
            else:
                yield ref
            if self._new_ids:
                yield from self._take_new_ids()
        found = find_moved((path for _, _, path in waiting if path), self._folder)
        for row, ref, path in waiting:
            yield self._moved(row, found[path]) if path in found else ref
        yield from self._take_new_ids()

    def _take_new_ids(self) -> Iterator[ClassId]:
        """Yields the ids of classes that are numbers and were not yielded before."""
        for own in self._new_ids:
            yield ClassId(str(own), own)
        self._new_ids.clear()

    @staticmethod
    def _may_have_moved(ref: ImageRef) -> bool:
        """Returns whether an image is missing, or has a path with backslashes in remote storage."""
        if ref.is_candidate:
            return storage.is_remote(ref.uri) and "\\" in ref.uri
        return ref.reason == QuarantineReason.UNREADABLE and not _is_there(ref.uri)

    def _moved(self, row: Row, moved: MovedFile) -> ImageRef:
        """Returns the reference of a row whose image was searched by its file name."""
        number, values = row
        assert not isinstance(values, str)
        ref = self._ref(number, values, moved.path)
        if moved.path:
            return ref
        return ref.quarantined(QuarantineReason.UNREADABLE, f"{self._shown}{number}: {moved.fault}")

    def _without_image(self, number: int, problem: str) -> ImageRef:
        ref = ImageRef(key=f"{self._own_key}:{number}", uri=self._manifest, split=NO_SPLIT)
        return ref.quarantined(QuarantineReason.BAD_ROW, f"{self._shown}{number}: {problem}")

    def _ref(self, number: int, values: Sequence[Any], inner: str = "") -> ImageRef:
        """Returns the reference of a row.

        Args:
          number: Number of the row.
          values: Values of the row.
          inner: Path of the image relative to the root, if it differs from the path in the row.
        """
        image, label, split, group, sha256 = values[:5]
        embedded = image if type(image) is EmbeddedImage else None
        try:
            key, uri = self._find(number, image, inner)
        except RowFault as fault:
            return self._without_image(number, str(fault))
        try:
            label = label if self._reads_classes else ""
            cached = self._labels.get(label) if type(label) is str else None
            label = self._label(label) if cached is None else cached
            split = self._split(split) if split else self._folder_split
            group = _text(group, "group") if group is not None and group != "" else ""
            sha256 = _sha256(sha256) if sha256 else ""
            extra = self._extra_values(values) if self._extra else ""
        except RowFault as fault:
            bad = ImageRef(key=key, uri=uri)
            return bad.quarantined(QuarantineReason.BAD_ROW, f"{self._shown}{number}: {fault}")
        place, size, version = embedded[:3] if embedded else ("", -1, "")
        if embedded and embedded.reason:
            bad = ImageRef(key, uri, label, split, group, sha256=sha256, extra=extra)
            return bad.quarantined(embedded.reason, f"{self._shown}{number}: {embedded.message}")
        if not embedded and not storage.is_remote(uri):
            try:
                uri, size, version = state_of(uri)
            except FileFault as fault:
                missing = ImageRef(key, uri, label, split, group, sha256=sha256, extra=extra)
                return missing.quarantined(QuarantineReason.UNREADABLE, f"{self._shown}{number}: {fault}")
        lacks = "" if label or self._about_objects else " has no class"
        ref = ImageRef(
            key, uri, label, split, group, size, version, sha256, place=place,
            message=f"{self._shown}{number}{lacks}", extra=extra,
        )  # fmt: skip
        if not self._about_objects:
            return ref
        try:
            return self._with_objects(ref, *values[len(ROLES) + len(self._extra) :])
        except AnnotationFault as fault:
            return ref.quarantined(QuarantineReason.BAD_ANNOTATION, f"{self._shown}{number}: {fault}")

    def _find(self, number: int, image: Any, inner: str) -> tuple[str, str]:
        """Returns (key, URI) of the image of a row.

        Raises:
          RowFault: If the row has none.
        """
        if type(image) is EmbeddedImage:
            return f"{self._own_key}!{number:06d}", self._manifest
        key, uri = self._root.find(image if type(image) is str else _path(image))
        if inner:
            key, uri = key_of(inner), join(self._folder, inner)
        return self._prefix + key, uri

    def _with_objects(self, ref: ImageRef, *value: Any) -> ImageRef:
        """Returns a reference with the annotations in the columns of objects."""
        found = annotated(ref, objects_of(*value) if value else objects_of(None))
        for name in found.labels:
            self._note_id(name)
        return found

    def _note_id(self, name: str) -> None:
        # 7.0 is not a class number but a measurement that is used as a class.
        if not self._numbers_are_ids:
            return
        if _NUMBER.match(name) and int(name) <= MAX_OWN_ID and int(name) not in self._ids:
            self._ids.add(int(name))
            self._new_ids.append(int(name))

    def _label(self, value: Any) -> str:
        """Returns the class names of a row, joined."""
        if isinstance(value, list | tuple):
            if any(isinstance(item, list | tuple | dict) for item in value):
                raise RowFault("its class is not text, a number or a list of them")
            names = [self._class(item) for item in value]
        else:
            text = self._class(value)
            names = text.split(self._separator) if self._separator else [text]
        names = list(dict.fromkeys(filter(None, (name.strip() for name in names))))
        if len(names) > 1 and not self._separator:
            raise RowFault(
                f"it has several classes ({', '.join(names[:3])[:_SHOWN]}); "
                "--label_separator '|' lets an image have several"
            )
        for name in names:
            if LABEL_SEPARATOR in name:
                raise RowFault("its class holds the control character 0x1F")
            if not self._about_objects:
                self._note_id(name)
        joined = LABEL_SEPARATOR.join(names)
        if type(value) is str and len(self._labels) < _REMEMBERED:
            self._labels[value] = joined
        return joined

    def _class(self, value: Any) -> str:
        """Returns the class that a value names; empty if it is missing."""
        class_names = self._class_names
        if not class_names or type(value) is not int:
            return _text(value, "class")
        if value == UNLABELLED:
            return ""
        if value not in range(len(class_names)):
            raise RowFault(f"its class {value} is not one of 0 to {len(class_names) - 1}")
        return class_names[value]

    def _split(self, value: Any) -> str:
        split = self._splits.get(value) if type(value) is str else None
        if split is None:
            text = _text(value, "split")
            if len(text) > _SHOWN:
                raise RowFault("its split is too long for a name")
            try:
                split = split_name(text) or self._folder_split
            except ValueError as error:
                raise RowFault(str(error)) from None
            split = self._ml_uses.get(split, split)
            if type(value) is str and len(self._splits) < _REMEMBERED:
                self._splits[value] = split
        return split

    def _extra_values(self, values: Sequence[Any]) -> str:
        found = {}
        try:
            for column, value in zip(self._extra, values[len(ROLES) :]):
                items = column_values(column, value, self._separator or _LIST_SEPARATOR)
                for item in items:
                    if isinstance(item, str):
                        item.encode("utf-8", "surrogateescape")
                found[column.name] = items
        except UnicodeEncodeError:
            raise RowFault("a value of its extra columns is not UTF-8") from None
        except (TypeError, ValueError) as error:
            raise RowFault(printable(str(error))[:_SHOWN]) from None
        return encode_extra(found)


def bare_rows(cells: Iterable[tuple[int, list[str] | str]], separator: str) -> Iterator[Row]:
    """Yields the values of rows `[split,]image[,label...]` in files without a header."""
    for number, row in cells:
        if isinstance(row, str):
            yield number, row
            continue
        has_split = len(row) > 1 and row[0].strip().upper() in ("", *SPLIT_WORDS)
        image, *labels = row[has_split:]
        split = row[0] if has_split else ""
        names: list[str] = [name for name in labels if name.strip()]
        if separator:
            names = [name for text in names for name in text.split(separator)]
        label = names[0] if len(names) == 1 else names
        yield number, (image, label, split, "", "")


def _is_there(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:  # a NUL
        return False


def _path(value: Any) -> str:
    if value is None or value == "":
        raise RowFault("it names no image")
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    raise RowFault(f"its image is not a path but {type(value).__name__}")


def _text(value: Any, what: str) -> str:
    """Returns a value as text; empty if it is missing."""
    if isinstance(value, str):
        text = value.strip()
    elif value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    elif isinstance(value, bool):
        return str(value).lower()
    elif isinstance(value, bytes):
        text = value.decode("utf-8", "surrogateescape").strip()
    elif isinstance(value, list | tuple | dict):
        raise RowFault(f"its {what} is not text or a number")
    else:
        text = str(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise RowFault(f"its {what} is not UTF-8; save the file as UTF-8") from None
    return text


def _sha256(value: Any) -> str:
    text = _text(value, "sha256")
    if text and not _SHA256.match(text):
        raise RowFault(f"its sha256 is not 64 hexadecimal digits but {text[:80]!r}")
    return text.lower()
