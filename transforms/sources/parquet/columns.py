"""Chooses the columns of a Parquet or Arrow file: its images, their classes and other values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.transforms.sources.tables.columns import (
    OBJECTS,
    check_layout,
    choose_columns,
    names_shown,
    usual_names,
)

#: Fields of Hugging Face's images, and key of their description in a schema's metadata.
BYTES, PATH = "bytes", "path"
_METADATA = b"huggingface"
#: Most names of classes, and deepest nesting of their description.
_MAX_CLASSES, _MAX_DEPTH = 1_000_000, 8


@dataclass(frozen=True)
class ImageTable:
    """Describes how to read the rows of a file.

    Attributes:
      kind: parquet or arrow.
      names: Names of the columns, as in a manifest's `Table`; the first has the images.
      has_path: Whether images are a struct with the file name beside the bytes.
      classes: Names of the classes whose numbers the rows have; empty if there are none.
      object_classes: The same for the objects, by name of the field that has the numbers.
      rows: Number of rows; -1 if unknown.
    """

    kind: str
    names: tuple[str, ...]
    has_path: bool = False
    classes: tuple[str, ...] = ()
    object_classes: Mapping[str, tuple[str, ...]] | None = None
    rows: int = -1

    def encode(self) -> dict[str, object]:
        """Returns the table as a JSON object."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @staticmethod
    def decode(value: dict[str, Any]) -> ImageTable:
        """Returns the table that `encode` wrote."""
        found = {name: tuple(item) if isinstance(item, list) else item for name, item in value.items()}
        return ImageTable(**found)  # type: ignore[arg-type]


class ColumnFault(UsageError):
    """Raised if a file has images, but its columns do not go with the settings."""


def is_image_struct(kind: Any) -> bool:
    """Returns whether a type is that of Hugging Face's images: a struct of bytes and path."""
    import pyarrow

    types = pyarrow.types
    if not types.is_struct(kind) or kind.get_field_index(BYTES) < 0:
        return False
    return is_binary(kind.field(BYTES).type)


def is_binary(kind: Any) -> bool:
    """Returns whether values of a type are bytes, also those of a dictionary."""
    import pyarrow

    types = pyarrow.types
    if isinstance(kind, pyarrow.DictionaryType):
        kind = kind.value_type
    tests = (types.is_binary, types.is_large_binary, types.is_binary_view)
    return any(test(kind) for test in tests)


def _image_column(
    shown: str, schema: Any, settings: ConvertSettings, holds_images: Callable[[str], bool]
) -> str:
    """Returns the name of the column of images; empty if there is none.

    Args:
      shown: Name of the file for messages.
      schema: Schema of the file.
      settings: Settings, which may name the column.
      holds_images: Function that returns whether the first values of a column of bytes are images.

    Raises:
      UsageError: If the named column has no images, or several columns have.
    """
    names = schema.names
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise UsageError(f"--input {shown} has two columns {printable(twice)!r}; rename one of them.")
    named = settings.image_column
    if named:
        if named not in names:
            return ""
        kind = schema.field(named).type
        return named if is_image_struct(kind) or (is_binary(kind) and holds_images(named)) else ""
    structs = [name for name in names if is_image_struct(schema.field(name).type)]
    features = _features(schema)
    images = [name for name in structs if _type_of(features.get(name)) == "Image"] or structs
    images = images or [name for name in names if is_binary(schema.field(name).type) and holds_images(name)]
    usual = [name for name in usual_names("image") if name in images]
    if len(images) > 1 and not usual:
        raise UsageError(
            f"--input {shown}: several of its columns hold images ({names_shown(images)}); name one with "
            "--image_column."
        )
    return next(iter(usual or images), "")


def table_of(
    shown: str, kind: str, schema: Any, settings: ConvertSettings, holds_images: Callable[[str], bool]
) -> ImageTable | None:
    """Returns the table of a file; None if it has no column of images.

    Args:
      shown: Name of the file for messages.
      kind: parquet or arrow.
      schema: Schema of the file.
      settings: Settings, which may name columns.
      holds_images: Function that returns whether the first values of a column of bytes are images.

    Raises:
      ColumnFault: If the columns do not go with the settings.
    """
    try:
        column = _image_column(shown, schema, settings, holds_images)
        if not column:
            return None
        table = _choose_table(shown, kind, schema, column, settings)
        check_layout(shown, table.names, schema.names, settings, "parquet")
    except UsageError as error:
        raise ColumnFault(str(error)) from None
    return table


def _choose_table(shown: str, kind: str, schema: Any, column: str, settings: ConvertSettings) -> ImageTable:
    """Returns the table of a file.

    Args:
      shown: Name of the file for messages.
      kind: parquet or arrow.
      schema: Schema of the file.
      column: Name of the column of images.
      settings: Settings, which may name other columns.

    Raises:
      UsageError: If a named column does not exist, or the columns do not go with the layout.
    """
    features = _features(schema)
    classes = [name for name in schema.names if _names_of(features.get(name))]
    label = settings.label_column
    if not label and not any(name in schema.names for name in usual_names("label")) and len(classes) == 1:
        label = classes[0]
    named = replace(settings, image_column=column, label_column=label)
    names = choose_columns(shown, schema.names, named, {})
    return ImageTable(
        kind=kind,
        names=names,
        has_path=_has_path(schema.field(column).type),
        classes=_names_of(features.get(names[1])),
        object_classes=_object_classes(features.get(OBJECTS)),
    )


def with_class_names(objects: Any, classes: Mapping[str, Sequence[str]] | None) -> Any:
    """Returns the objects of a row with the names of their classes instead of numbers.

    Numbers without a name become empty names.
    """
    if not classes or not objects:
        return objects
    if isinstance(objects, list):
        return [with_class_names(item, classes) if isinstance(item, dict) else item for item in objects]
    return {
        name: _named(value, classes[name]) if name in classes else value for name, value in objects.items()
    }


def _named(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    if type(value) is not int:
        return value
    return names[value] if value in range(len(names)) else ""


def _has_path(kind: Any) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_struct(kind)) and kind.get_field_index(PATH) >= 0


def _features(schema: Any) -> Mapping[str, Any]:
    """Returns Hugging Face's description of the columns; empty if there is none."""
    try:
        metadata = json.loads((schema.metadata or {}).get(_METADATA, b"{}"))
        found = metadata["info"]["features"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return {}
    return found if isinstance(found, Mapping) else {}


def _type_of(feature: Any) -> str:
    return str(feature.get("_type", "")) if isinstance(feature, Mapping) else ""


def _names_of(feature: Any, depth: int = 0) -> tuple[str, ...]:
    """Returns the names of a feature of classes, or of lists of classes; empty if it is another feature."""
    if isinstance(feature, list) and len(feature) == 1:
        return _names_of(feature[0], depth + 1) if depth < _MAX_DEPTH else ()
    if not isinstance(feature, Mapping) or depth > _MAX_DEPTH:
        return ()
    if _type_of(feature) != "ClassLabel":
        return _names_of(feature.get("feature"), depth + 1)
    names = feature.get("names")
    if not isinstance(names, list) or not 0 < len(names) <= _MAX_CLASSES:
        return ()
    found = tuple(name.strip() if isinstance(name, str) else "" for name in names)
    return found if all(found) and len(set(found)) == len(found) else ()


def _object_classes(feature: Any) -> dict[str, tuple[str, ...]] | None:
    """Returns the names of the classes of objects by field, for a struct of lists or a list of structs."""
    for _ in range(_MAX_DEPTH):
        if isinstance(feature, list) and len(feature) == 1:
            feature = feature[0]
        elif isinstance(feature, Mapping) and "_type" in feature and "feature" in feature:
            feature = feature["feature"]
        else:
            break
    if not isinstance(feature, Mapping):
        return None
    found = {str(name): _names_of(item) for name, item in feature.items()}
    return {name: names for name, names in found.items() if names} or None
