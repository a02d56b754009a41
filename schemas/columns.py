"""Extra columns: values of a source that are stored in additional features."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from shardwright.schemas.example import FeatureType
from shardwright.schemas.units import shape_text
from shardwright.schemas.values import TYPE_NAMES, ValueType, coerce, feature_type, short_repr, value_type

_COLUMN = re.compile(r"(?P<name>[^:\[\]]+):(?P<type>[a-z0-9]+)(?P<list>\[\])?\Z")


class ExtraColumn(NamedTuple):
    """An extra column to store.

    Attributes:
      name: Name of the column.
      value_type: Declared type of its values.
      is_list: Whether each value is a list.
      names: Names of an enum, in the order of its numbers from 0.
      optional: Whether a value may be missing.
      wide: Whether all 64 bits of a double or a uint64 are stored, as in serialized tensors.
      rows: Number of values per dimension, None for any, if the values are nested lists. They are stored row
        by row.
    """

    name: str
    value_type: ValueType
    is_list: bool = False
    names: tuple[str, ...] = ()
    optional: bool = False
    wide: bool = False
    rows: tuple[int | None, ...] = ()

    @property
    def type(self) -> FeatureType:
        """The type of its feature."""
        return feature_type(self.value_type)


def parse_extra_columns(text: str) -> tuple[ExtraColumn, ...]:
    """Parses `price:float,tags:string[]`.

    Raises:
      ValueError: If an entry is wrong or a name occurs twice.
    """
    columns: dict[str, ExtraColumn] = {}
    for part in filter(None, (piece.strip() for piece in str(text).split(","))):
        match = _COLUMN.match(part)
        if not match or match["type"] not in TYPE_NAMES:
            raise ValueError(
                f"{part!r} is not a column; write NAME:TYPE or NAME:TYPE[], with one of the types "
                f"{', '.join(TYPE_NAMES)}"
            )
        if match["name"] in columns:
            raise ValueError(f"column {match['name']!r} occurs twice")
        columns[match["name"]] = ExtraColumn(match["name"], value_type(match["type"]), bool(match["list"]))
    return tuple(columns.values())


def encode_extra(values: Mapping[str, Sequence[Any]]) -> str:
    """Returns the values of extra columns as an `ImageRef` carries them."""
    return json.dumps(values, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def decode_extra(text: str) -> dict[str, list[Any]]:
    """Reads the result of `encode_extra`. Bytes are still `str`, with surrogate escapes."""
    values: dict[str, list[Any]] = json.loads(text) if text else {}
    return values


def finite_or_text(number: str) -> float | str:
    """Returns a number that JSON can hold; an infinite one becomes text, which `coerce` refuses."""
    value = float(number)
    return number if math.isinf(value) else value


def column_values(column: ExtraColumn, value: Any, separator: str) -> list[Any]:
    """Returns a cell's values as a record stores them (`coerce`); bytes as `str`, with surrogate escapes.

    Args:
      column: The column that the cell is in.
      value: Text of a CSV file, or a value of JSON, Parquet or NumPy; None or empty if it is missing.
      separator: Text between the items of a list.

    Raises:
      ValueError: If a required value is missing, or the value has another type.
    """
    if column.is_list:
        return [_convert(column, item) for item in _items(column, value, separator)]
    if column.optional and (value is None or (isinstance(value, str) and not value)):
        return []
    if value is None or (isinstance(value, str) and not value and column.type is not FeatureType.BYTES):
        raise ValueError(f"{column.name} is empty")
    if isinstance(value, list | tuple | dict):
        raise ValueError(f"{column.name} holds several values; declare it as {column.name}:...[]")
    return [_convert(column, value)]


def _items(column: ExtraColumn, value: Any, separator: str) -> Iterable[Any]:
    """Returns the items of a list. A single value becomes a list with one item."""
    if value is None or (isinstance(value, str | bytes) and not value):
        return ()
    if isinstance(value, str):
        return value.split(separator) if separator else (value,)
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        return (value,)
    if isinstance(value, Mapping):
        raise ValueError(f"{column.name}: {short_repr(value)} is not a list of single values")
    items = list(value)
    if column.rows and items and _is_row(items[0]):
        return _in_row_order(column, items)
    return items


def _is_row(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)


def _in_row_order(column: ExtraColumn, value: Any) -> list[Any]:
    """Returns the values of nested lists, row by row.

    Raises:
      ValueError: If they do not have the column's shape.
    """
    level = [value]
    for side in column.rows:
        sizes = {len(row) if _is_row(row) else None for row in level}
        if None in sizes or len(sizes) > 1 or (side is not None and sizes - {side}):
            shape = shape_text(column.rows)
            raise ValueError(f"{column.name}: {short_repr(value)} does not have the shape {shape}")
        level = [item for row in level for item in row]
    return level


def _convert(column: ExtraColumn, value: Any) -> Any:
    if value is None:
        raise ValueError(f"{column.name}: an item of its list is missing")
    if isinstance(value, list | tuple | dict):
        raise ValueError(f"{column.name}: {short_repr(value)} inside a list is not a single value")
    try:
        stored = coerce(value, column.value_type, column.names, column.wide)
    except ValueError as error:
        raise ValueError(f"{column.name}: {error}") from None
    return stored.decode("utf-8", "surrogateescape") if isinstance(stored, bytes) else stored
