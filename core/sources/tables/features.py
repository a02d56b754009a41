"""Reads Hugging Face's description of the columns of a Parquet or Arrow file: its `Features`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shardwright.core.sources.tables.parquet import BYTES, is_bytes
from shardwright.core.sources.tables.rows import CLASSES

#: Key of Hugging Face's description of the columns in a schema's metadata.
_METADATA = b"huggingface"
#: Most names of classes, and deepest nesting of their description.
_MAX_CLASSES, _MAX_DEPTH = 1_000_000, 8


def described_columns(schema: Any) -> Mapping[str, Any]:
    """Returns Hugging Face's description of the columns; empty if there is none."""
    try:
        features = json.loads((schema.metadata or {}).get(_METADATA, b"{}"))["info"]["features"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return {}
    return features if isinstance(features, Mapping) else {}


def type_of(feature: Any) -> str:
    """Returns the name of a feature's type; empty if it states none."""
    return str(feature.get("_type", "")) if isinstance(feature, Mapping) else ""


def _item_of(feature: Any) -> Any:
    """Returns the feature of the items of a list, or of lists of lists; other features as they are."""
    for _ in range(_MAX_DEPTH):
        if isinstance(feature, list) and len(feature) == 1:
            feature = feature[0]
        elif type_of(feature) and "feature" in feature:
            feature = feature["feature"]
        else:
            break
    return feature


def class_names(feature: Any) -> tuple[str, ...]:
    """Returns the names of a feature of classes, or of lists of classes; empty if it is another feature."""
    feature = _item_of(feature)
    names = feature.get("names") if type_of(feature) == "ClassLabel" else None
    if not isinstance(names, list) or not 0 < len(names) <= _MAX_CLASSES:
        return ()
    stripped = tuple(name.strip() if isinstance(name, str) else "" for name in names)
    return stripped if all(stripped) and len(set(stripped)) == len(stripped) else ()


def object_classes(feature: Any) -> tuple[str, ...]:
    """Returns the names of the classes of objects, for a struct of lists or a list of structs."""
    fields = _item_of(feature)
    names = map(class_names, map(fields.get, CLASSES) if isinstance(fields, Mapping) else ())
    return next(filter(None, names), ())


def is_struct_of_bytes(type_: Any) -> bool:
    """Returns whether values have Hugging Face's type of images, a struct of bytes and path."""
    import pyarrow

    has_bytes = pyarrow.types.is_struct(type_) and type_.get_field_index(BYTES) >= 0
    return has_bytes and is_bytes(type_.field(BYTES).type)
