"""Reads metadata files beside images: `1.cls`, `1.json` and `1.txt` for `1.jpg`, as in a WebDataset."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardwright.schemas.annotations import Annotations
from shardwright.schemas.columns import column_values, encode_extra, finite_or_text
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.labels import ClassId
from shardwright.schemas.layouts import FeatureRole, Needs
from shardwright.schemas.plain_text import UTF16, is_utf16

#: Extensions of metadata files: a class, any fields, a caption.
METADATA = ("cls", "json", "txt")
#: Largest metadata file in bytes.
MAX_METADATA_BYTES = 16 << 20
#: A whole number without leading zeros; 007 is a name.
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_LABEL_FIELDS = ("label", "class", "cls", "class_name")
_UNLABELLED = "neither .cls nor .json says its class"


class BadMetadata(ValueError):
    """The metadata of an image is invalid."""


def decoded(name: str, data: bytes) -> str:
    """Returns the text of a metadata file with an extension.

    Raises:
      BadMetadata: if it is not UTF-8 text.
    """
    if is_utf16(data):
        raise BadMetadata(f"its .{name} file is {UTF16}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadMetadata(f"its .{name} file is not UTF-8 text") from None


@dataclass
class Metadata:
    """Metadata of an image, as fields of a reference.

    Attributes:
      label: Class name, or several joined by `LABEL_SEPARATOR`; empty if there is none.
      message: Why there is no class.
      annotations: Caption; None if there is none.
      extra: Values of extra columns (`encode_extra`).
      numbers: Ids of the numeric classes.
    """

    label: str = ""
    message: str = _UNLABELLED
    annotations: Annotations | None = None
    extra: str = ""
    numbers: tuple[ClassId, ...] = ()


def metadata_needed(settings: ConvertSettings, has_class: bool) -> frozenset[str]:
    """Returns the extensions in `METADATA` of the files that must be read.

    Args:
      settings: Checked settings.
      has_class: Whether the class of the image is known from elsewhere.
    """
    needed = set()
    reads_class = _reads_class(settings, has_class)
    if settings.parsed_extra_columns or reads_class:
        needed.add("json")
    if reads_class and not settings.label_column:
        needed.add("cls")
    if FeatureRole.CAPTION in settings.record_layout.by_role():
        needed.add("txt")
    return frozenset(needed)


def _reads_class(settings: ConvertSettings, has_class: bool) -> bool:
    """Returns whether metadata gives the class of an image."""
    if settings.record_layout.needs is Needs.IMAGE:
        return False
    return bool(settings.label_column) or not has_class


def read_metadata(texts: Mapping[str, str], settings: ConvertSettings, has_class: bool = False) -> Metadata:
    """Parses the metadata files of an image.

    Args:
      texts: Extension in `METADATA` -> content.
      settings: Checked settings.
      has_class: Whether the class of the image is known from elsewhere.

    Raises:
      BadMetadata: if the metadata is invalid.
    """
    values = _parse_json(texts["json"]) if "json" in texts else {}
    metadata = Metadata()
    value = _label_value(texts, values, settings) if _reads_class(settings, has_class) else None
    if value is not None:
        names = _class_names(value, settings.label_separator)
        metadata.label = LABEL_SEPARATOR.join(dict.fromkeys(str(name) for name in names))
        metadata.numbers = tuple(ClassId(str(name), name) for name in names if isinstance(name, int))
        metadata.message = "" if names else "its class is empty"
    if texts.get("txt", "").strip():
        metadata.annotations = Annotations(captions=(_storable(texts["txt"].strip()),))
    if settings.parsed_extra_columns:
        try:
            extra = {
                column.name: column_values(column, values.get(column.name), settings.label_separator or ",")
                for column in settings.parsed_extra_columns
            }
        except (ValueError, TypeError) as error:
            raise BadMetadata(f"its .json lacks a value or has a wrong one: {error}") from None
        metadata.extra = _storable(encode_extra(extra))
    return metadata


def _parse_json(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text, parse_float=finite_or_text)
    except (ValueError, RecursionError):
        raise BadMetadata("its .json file is not JSON") from None
    return values if isinstance(values, dict) else {"label": values} if isinstance(values, int | str) else {}


def _label_value(texts: Mapping[str, str], values: dict[str, Any], settings: ConvertSettings) -> Any:
    """Returns the class that the metadata gives; None if it gives none."""
    if settings.label_column:
        return values.get(settings.label_column)
    if "cls" in texts:
        return texts["cls"].strip()
    return next((values[name] for name in _LABEL_FIELDS if values.get(name) is not None), None)


def _class_names(value: Any, separator: str) -> list[str | int]:
    """Returns class names, as numbers if they are numeric; empty for negative numbers."""
    if isinstance(value, list):
        if not separator and len(value) > 1:
            raise BadMetadata("it has several classes; choose a --label_separator to store them all")
        items = value
    elif isinstance(value, str) and separator:
        items = [piece.strip() for piece in value.split(separator)]
    else:
        items = [value]
    return [name for name in map(_class_name, items) if name != ""]


def _class_name(value: Any) -> str | int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str):
        text = value.strip()
        if not _NUMBER.fullmatch(text):
            if LABEL_SEPARATOR in text:
                raise BadMetadata("its class holds a control character")
            return _storable(text)
        value = int(text)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadMetadata(f"its class is {str(value)[:80]!r}, neither a name nor a number")
    if not -(2**63) <= value < 2**63:
        raise BadMetadata("its class number is too large")
    return value if value >= 0 else ""


def _storable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadMetadata("it holds text that is not valid Unicode") from None
    return text
