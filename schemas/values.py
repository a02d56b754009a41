"""The types of single values, and their conversion to what a `tf.train.Feature` stores.

`tf.train.Feature` stores 64-bit integers, 32-bit floats and bytes. Values are accepted and stored as protobuf
does (protobuf 6 in Python), with these differences:

- text is read as numbers if needed, because CSV files contain only text, and is stored as UTF-8;
- NumPy's booleans, which protobuf refuses, count as booleans;
- `bool`, `int32` and `uint32` have the range of their type;
- a finite number that does not fit into 32 bits is refused; protobuf stores infinity.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence, Sized
from enum import StrEnum
from operator import index
from typing import Any

from shardwright.schemas.example import FeatureType


class ValueType(StrEnum):
    """The declared type of a value."""

    BOOL = "bool"
    ENUM = "enum"
    INT32 = "int32"
    UINT32 = "uint32"
    INT64 = "int64"
    UINT64 = "uint64"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"


#: Aliases of types.
ALIASES = {"int": ValueType.INT64}
#: All names of types.
TYPE_NAMES = (*(type_.value for type_ in ValueType), *ALIASES)

_INT64 = range(-(2**63), 2**63)
#: The integers of each type that fit into a signed 64-bit integer: not the upper half of uint64.
_RANGES = {
    ValueType.BOOL: range(2),
    ValueType.ENUM: _INT64,
    ValueType.INT32: range(-(2**31), 2**31),
    ValueType.UINT32: range(2**32),
    ValueType.INT64: _INT64,
    ValueType.UINT64: range(2**63),
}
_BOOLS = {"true": 1, "yes": 1, "1": 1, "false": 0, "no": 0, "0": 0}
_WHOLE = re.compile(r"[+-]?[0-9]{1,400}\Z")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[+-]?(?:inf|infinity|nan)\Z", re.IGNORECASE)
_FLOAT32, _FLOAT64 = struct.Struct("<f"), struct.Struct("<d")
#: Maximum number of characters of a value in a message, without and with quotes.
_SHOWN, _QUOTED = 80, 60


def value_type(name: str) -> ValueType:
    """Returns the type with this name, which is one of `TYPE_NAMES`."""
    return ALIASES.get(name) or ValueType(name)


def feature_type(type_: ValueType) -> FeatureType:
    """Returns the kind of list that stores values of a type."""
    if type_ in _RANGES:
        return FeatureType.INT64
    return FeatureType.FLOAT if type_ in (ValueType.FLOAT, ValueType.DOUBLE) else FeatureType.BYTES


def coerce(
    value: Any, type_: ValueType, names: Sequence[str] = (), wide: bool = False
) -> int | float | bytes:
    """Converts a value to what a `tf.train.Feature` stores.

    Args:
      value: A value of Python or NumPy, or text.
      type_: Its declared type.
      names: Names of an enum, in the order of its numbers from 0.
      wide: Whether all 64 bits of a double or a uint64 are kept, as in a serialized tensor.

    Raises:
      ValueError: If the value is not of that type or does not fit; the message says why.
    """
    if type_ in _RANGES:
        return _whole(value, type_, names, wide)
    if type_ in (ValueType.FLOAT, ValueType.DOUBLE):
        return _float(value, type_, wide)
    return _bytes(value, type_)


def allowed_numbers(type_: ValueType, names: Sequence[str] = (), wide: bool = False) -> range:
    """Returns the range of integers of a type.

    Args:
      type_: A type that is stored as integers.
      names: Names of an enum, in the order of its numbers from 0.
      wide: Whether all 64 bits of a uint64 are kept, as in a serialized tensor.
    """
    if wide and type_ is ValueType.UINT64:
        return range(2**64)
    return range(len(names)) if type_ is ValueType.ENUM and names else _RANGES[type_]


def short_repr(value: Any) -> str:
    """Returns a value for a message, cut off if it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print an integer of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def quoted_value(value: Any) -> str:
    """Returns a value for a message: in quotes, and shortened."""
    text = value if isinstance(value, str) else short_repr(value)
    text = text.lower() if isinstance(value, bool) else text
    return repr(text if len(text) <= _QUOTED else text[:_QUOTED] + "...")


def _whole(value: Any, type_: ValueType, names: Sequence[str], wide: bool) -> int:
    if isinstance(value, str):
        number = _whole_in_text(value, type_, names)
    elif isinstance(value, Sized):
        raise ValueError(f"{short_repr(value)} is not a valid {type_}")
    elif type_ is ValueType.BOOL and _numpy_kind(value) == "b":
        number = int(bool(value))
    else:
        try:
            number = int(index(value))
        except TypeError:
            is_float = isinstance(value, float) or _numpy_kind(value) == "f"
            why = ": it is a float, which is never cut to a whole number; declare the column as float"
            raise ValueError(f"{short_repr(value)} is not a valid {type_}{why if is_float else ''}") from None
    allowed = allowed_numbers(type_, names, wide)
    if number not in allowed:
        raise ValueError(
            f"{short_repr(value)} is not a valid {type_}: a tf.train.Feature stores {allowed[0]} to "
            f"{allowed[-1]}"
        )
    return number


def _whole_in_text(value: str, type_: ValueType, names: Sequence[str]) -> int:
    text = value.strip()
    if type_ is ValueType.BOOL:
        if text.lower() not in _BOOLS:
            raise ValueError(f"{short_repr(value)} is not a valid bool; write true or false")
        return _BOOLS[text.lower()]
    for name in (value, text):
        if name in names:
            return names.index(name)
    if not _WHOLE.match(text):
        of = f" of {', '.join(names)}"[:200] if names else ""
        raise ValueError(f"{short_repr(value)} is not a valid {type_}{of}")
    return int(text)


def _numpy_kind(value: Any) -> str:
    """Returns NumPy's letter for the kind of one of its scalars; empty for any other value."""
    return str(getattr(getattr(value, "dtype", None), "kind", ""))


def _float(value: Any, type_: ValueType, wide: bool) -> float:
    if isinstance(value, str):
        text = value.strip()
        if not _NUMBER.match(text) and not _NOT_FINITE.match(text):
            raise ValueError(f"{short_repr(value)} is not a valid {type_}")
        infinite = "n" in text.lower()  # inf, infinity or nan
        number = float(text)
    elif isinstance(value, Sized | complex) or _numpy_kind(value) == "c":
        raise ValueError(f"{short_repr(value)} is not a valid {type_}")
    else:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        except (TypeError, ValueError):
            raise ValueError(f"{short_repr(value)} is not a valid {type_}") from None
        infinite = bool(value != value or value == number)
    if not math.isfinite(number) and infinite:
        return number
    stored_as = _FLOAT64 if wide and type_ is ValueType.DOUBLE else _FLOAT32
    try:
        if not math.isfinite(number):
            raise OverflowError
        (stored,) = stored_as.unpack(stored_as.pack(number))
    except OverflowError:
        bits = 8 * stored_as.size
        raise ValueError(f"{short_repr(value)} is too large for the {bits} bits of a {type_}") from None
    return float(stored)


def _bytes(value: Any, type_: ValueType) -> bytes:
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, str):
        try:
            return str(value).encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise ValueError(f"{short_repr(value)} cannot be written as UTF-8") from None
    raise ValueError(
        f"{short_repr(value)} is not a valid {type_}; write it as text, or declare the type that it has"
    )
