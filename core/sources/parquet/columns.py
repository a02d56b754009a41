"""Chooses the columns of a Parquet or Arrow file: its images, their classes and other values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from shardwright.core.sources.tables.columns import (
    OBJECTS,
    ROLES,
    check_layout,
    check_unique,
    choose_columns,
    describe_columns,
    names_shown,
    usual_names,
)
from shardwright.core.sources.tables.parquet import is_bytes
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.layouts import Needs
from shardwright.schemas.units import counted

#: Fields of Hugging Face's images, and key of their description in a schema's metadata.
BYTES, PATH = "bytes", "path"
_METADATA = b"huggingface"
#: Most names of classes, and deepest nesting of their description.
_MAX_CLASSES, _MAX_DEPTH = 1_000_000, 8


class ImageTable(NamedTuple):
    """Describes how to read the rows of a file; `InputSplit.detail` carries it.

    Attributes:
      kind: Parquet or Arrow.
      names: Names of the columns, as `choose_columns` returns them; the first has the images.
      image_fields: Fields of the images, if they are structs; empty if they are bytes.
      classes: Names of the classes whose numbers the rows have; empty if there are none.
      object_classes: The same for the objects, by name of the field that has the numbers.
      has_rows: Whether there are any rows.
    """

    kind: str
    names: Sequence[str]
    image_fields: Sequence[str] = ()
    classes: Sequence[str] = ()
    object_classes: Mapping[str, Sequence[str]] = {}
    has_rows: bool = True

    def class_names(self, needs: Needs) -> Sequence[str]:
        """Returns the names of the classes that a layout stores; empty if the file does not have them."""
        return next(iter(self.object_classes.values()), ()) if needs is Needs.OBJECTS else self.classes

    def describe(self, settings: ConvertSettings) -> str:
        """Returns what the columns have, for messages."""
        image, label, *others = self.names
        names = f" ({counted(len(self.classes), 'name')})" if self.classes else ""
        shown = (image, "" if settings.record_layout.needs is Needs.IMAGE else label, *others)
        return describe_columns(shown, OBJECTS in self.names[len(ROLES) :], {"classes": names})


def table_of(
    shown: str, kind: str, schema: Any, settings: ConvertSettings, holds_images: Callable[[str], bool]
) -> ImageTable | None:
    """Returns the table of a file; None if it has no column of images.

    Args:
      shown: Name of the file for messages.
      kind: Parquet or Arrow.
      schema: Schema of the file.
      settings: Settings, which may name columns.
      holds_images: Function that returns whether the first values of a column of bytes are images.

    Raises:
      UsageError: If the columns do not go with the settings.
    """
    check_unique(shown, schema.names)
    features = _features(schema)
    column = _image_column(shown, schema, features, settings.image_column, holds_images)
    if not column:
        return None
    label = settings.label_column
    if not label and not any(name in schema.names for name in usual_names("label")):
        numbered = [name for name in schema.names if _names_of(features.get(name))]
        label = numbered[0] if len(numbered) == 1 else ""
    named = replace(settings, image_column=column, label_column=label)
    names = choose_columns(shown, schema.names, named, {})
    check_layout(shown, names, schema.names, settings, "parquet")
    return ImageTable(
        kind,
        names,
        _fields_of(schema.field(column).type),
        _names_of(features.get(names[1])),
        _object_classes(features.get(OBJECTS)),
    )


def _image_column(
    shown: str, schema: Any, features: Mapping[str, Any], named: str, holds_images: Callable[[str], bool]
) -> str:
    """Returns the name of the column of images; empty if there is none.

    Raises:
      UsageError: If several columns have images.
    """
    names = [name for name in schema.names if name and named in ("", name)]
    structs = [name for name in names if BYTES in _fields_of(schema.field(name).type)]
    images = [name for name in structs if _type_of(features.get(name)) == "Image"] or structs
    images = images or [name for name in names if is_bytes(schema.field(name).type) and holds_images(name)]
    usual = [name for name in usual_names("image") if name in images]
    if len(images) > 1 and not usual:
        raise UsageError(
            f"--input {shown}: several of its columns hold images ({names_shown(images)}); name one with "
            "--image_column."
        )
    return next(iter(usual or images), "")


def _fields_of(kind: Any) -> tuple[str, ...]:
    """Returns the fields of Hugging Face's type of images, a struct of bytes and path; empty for others."""
    import pyarrow

    if not pyarrow.types.is_struct(kind) or kind.get_field_index(BYTES) < 0:
        return ()
    return tuple(field.name for field in kind) if is_bytes(kind.field(BYTES).type) else ()


def with_class_names(objects: Any, classes: Mapping[str, Sequence[str]]) -> Any:
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


def _features(schema: Any) -> Mapping[str, Any]:
    """Returns Hugging Face's description of the columns; empty if there is none."""
    try:
        features = json.loads((schema.metadata or {}).get(_METADATA, b"{}"))["info"]["features"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return {}
    return features if isinstance(features, Mapping) else {}


def _type_of(feature: Any) -> str:
    return str(feature.get("_type", "")) if isinstance(feature, Mapping) else ""


def _item_of(feature: Any) -> Any:
    """Returns the feature of the items of a list, or of lists of lists; other features as they are."""
    for _ in range(_MAX_DEPTH):
        if isinstance(feature, list) and len(feature) == 1:
            feature = feature[0]
        elif _type_of(feature) and "feature" in feature:
            feature = feature["feature"]
        else:
            break
    return feature


def _names_of(feature: Any) -> tuple[str, ...]:
    """Returns the names of a feature of classes, or of lists of classes; empty if it is another feature."""
    feature = _item_of(feature)
    names = feature.get("names") if _type_of(feature) == "ClassLabel" else None
    if not isinstance(names, list) or not 0 < len(names) <= _MAX_CLASSES:
        return ()
    stripped = tuple(name.strip() if isinstance(name, str) else "" for name in names)
    return stripped if all(stripped) and len(set(stripped)) == len(stripped) else ()


def _object_classes(feature: Any) -> dict[str, tuple[str, ...]]:
    """Returns the names of the classes of objects by field, for a struct of lists or a list of structs."""
    feature = _item_of(feature)
    fields = feature.items() if isinstance(feature, Mapping) else ()
    return {str(name): names for name, item in fields if (names := _names_of(item))}
