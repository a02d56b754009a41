"""Formats the values of a record for JSON and for the screen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from shardwright.core.images.signatures import HEAD_BYTES, kind_of
from shardwright.core.preview.decoded_values import is_bare_pixels, without_encodings
from shardwright.core.records.encodings import plain_spec
from shardwright.core.records.record_schema import RecordSchema
from shardwright.pipelines.tables import one_line
from shardwright.schemas.example import Feature
from shardwright.schemas.image_formats import FORMAT_NAMES
from shardwright.schemas.layouts import FeatureRole
from shardwright.schemas.units import format_size

_MAX_VALUES_SHOWN = 8
_MAX_TEXT_SHOWN = 200


def values_of(example: Mapping[str, Feature], schema: RecordSchema) -> Iterator[tuple[str, Any]]:
    """Yields features as JSON stores them: first those of the schema in its order, then all others.

    Base64 values and serialized tensors are decoded.
    """
    example = without_encodings(example, schema)
    pixels, raw = schema.spec(FeatureRole.ENCODED), is_bare_pixels(example, schema)
    single = {spec.name for spec in map(plain_spec, schema.features) if spec.length == 1}
    known = [spec.name for spec in schema.features if spec.name in example]
    for name in [*known, *sorted(example.keys() - set(known))]:
        if pixels is not None and name == pixels.name:
            values = [_picture(value, raw) for value in example[name].values]
        else:
            values = [_value(value) for value in example[name].values]
        yield name, values[0] if name in single and len(values) == 1 else values


def _picture(value: Any, raw: bool = False) -> Any:
    """Returns the size and the kind of bytes."""
    if not isinstance(value, bytes):
        return _value(value)
    kind = "raw" if raw else kind_of(value[:HEAD_BYTES])
    return {"bytes": len(value), "kind": FORMAT_NAMES.get(kind, kind) if kind else None}


def _value(value: Any) -> Any:
    """Returns a value as JSON stores it; bytes that are not text become their size and kind."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if not isinstance(value, bytes):
        return value
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return _picture(value)
    return text if all(char.isprintable() or char in "\n\r\t" for char in text) else _picture(value)


def as_text(value: Any) -> str:
    """Returns a value for the screen: one short line without control characters."""
    if isinstance(value, list):
        listed = ", ".join(as_text(item) for item in value[:_MAX_VALUES_SHOWN])
        more = f", ... {len(value):,} in all" if len(value) > _MAX_VALUES_SHOWN else ""
        return f"[{listed}{more}]"
    if isinstance(value, dict):
        return f"<{format_size(value['bytes'])} {value['kind'] or 'binary'}>"
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    cut = text[:_MAX_TEXT_SHOWN]
    return one_line(cut) + (f"... {len(text):,} characters in all" if len(text) > len(cut) else "")
