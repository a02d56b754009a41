"""Extra columns: values of a source that are stored in features of their own."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shardwright.schemas.example import FeatureType

_TYPES = {
    "int": FeatureType.INT64,
    "int64": FeatureType.INT64,
    "float": FeatureType.FLOAT,
    "bytes": FeatureType.BYTES,
    "string": FeatureType.BYTES,
}
_COLUMN = re.compile(r"(?P<name>[^:\[\]]+):(?P<type>[a-z0-9]+)(?P<list>\[\])?\Z")
_INT64 = range(-(2**63), 2**63)
#: Largest magnitude of a 32-bit float.
_MAX_FLOAT = (2 - 2**-23) * 2.0**127


class ExtraColumn(NamedTuple):
    """A column to store: its name, the type of its feature, and whether it holds lists."""

    name: str
    type: FeatureType
    is_list: bool


def parse_extra_columns(text: str) -> tuple[ExtraColumn, ...]:
    """Parses `price:float,tags:string[]`.

    Raises:
      ValueError: if an entry is wrong or a name stands twice.
    """
    columns: dict[str, ExtraColumn] = {}
    for part in filter(None, (piece.strip() for piece in str(text).split(","))):
        match = _COLUMN.match(part)
        if not match or match["type"] not in _TYPES:
            raise ValueError(
                f"{part!r} is no column; write NAME:TYPE or NAME:TYPE[], types {', '.join(_TYPES)}"
            )
        if match["name"] in columns:
            raise ValueError(f"column {match['name']!r} stands twice")
        columns[match["name"]] = ExtraColumn(match["name"], _TYPES[match["type"]], bool(match["list"]))
    return tuple(columns.values())


def encode_extra(values: Mapping[str, Sequence[Any]]) -> str:
    """Returns the values of extra columns as an `ImageRef` carries them."""
    return json.dumps(values, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def decode_extra(text: str) -> dict[str, list[Any]]:
    """Reads what `encode_extra` wrote; texts are still `str`."""
    values: dict[str, list[Any]] = json.loads(text) if text else {}
    return values


def column_values(column: ExtraColumn, value: Any, separator: str) -> list[Any]:
    """Returns a cell's values in the type of its column; bytes as `str`.

    Args:
      column: what is expected.
      value: text of a CSV file, or a value of JSON or Parquet; None or empty where it is missing.
      separator: between the items of a list in a text.

    Raises:
      ValueError: if the value is missing where one is needed, or of another type.
    """
    if column.is_list:
        if value is None or value == "":
            return []
        items = value.split(separator) if isinstance(value, str) else list(value)
        return [_convert(column, item) for item in items]
    if value is None or (value == "" and column.type is not FeatureType.BYTES):
        raise ValueError(f"{column.name} is empty")
    if isinstance(value, list | tuple | dict):
        raise ValueError(f"{column.name} holds several values; declare it as {column.name}:...[]")
    return [_convert(column, value)]


def _convert(column: ExtraColumn, value: Any) -> Any:
    if isinstance(value, str):
        value = value if column.type is FeatureType.BYTES else value.strip()
    if column.type is FeatureType.BYTES:
        return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
    try:
        if column.type is FeatureType.FLOAT:
            number = float(value)
            if math.isfinite(number) and abs(number) > _MAX_FLOAT:
                raise ValueError
            return number
        if isinstance(value, float) and not value.is_integer():
            raise ValueError
        whole = int(value)
        if whole not in _INT64:
            raise ValueError
        return whole
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{column.name}: {value!r} is no {column.type.value}") from None
