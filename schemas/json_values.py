"""Dataclasses and named tuples as JSON, and back with the types of their fields checked; bytes as base64.

A class whose JSON differs from its fields has methods `as_json` and `from_json` of its own.
"""

from __future__ import annotations

import base64
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

_T = TypeVar("_T")
_Reader = Callable[[Any], Any]


def json_object(data: bytes | str, loads: Callable[..., Any] = json.loads) -> dict[str, Any]:
    """Parses a JSON object with `loads`; returns an empty one if the text is damaged or another value."""
    try:
        value = loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def to_json(value: Any) -> Any:
    """Returns a value as JSON: objects by their fields, mappings and lists by their values."""
    if hasattr(value, "as_json"):
        return value.as_json()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {name: to_json(item) for name, item in value.items()}
    if is_dataclass(value) or hasattr(value, "_fields"):
        return fields_json(value)
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def fields_json(value: Any) -> dict[str, Any]:
    """Returns the fields of an object as JSON, also if it has a method `as_json`, which may add to them."""
    return {name: to_json(getattr(value, name)) for name in _defaults(value.__class__)}


def given_fields(value: Any, *always: str) -> dict[str, Any]:
    """Returns the fields of an object that differ from their defaults, and those that are always given."""
    given = {}
    for name, default in _defaults(value.__class__).items():
        item = getattr(value, name)
        if item != default or name in always:
            given[name] = item
    return given


def from_json(kind: type[_T], value: Any) -> _T:
    """Reads the fields of an object. Further names, which a later version may have written, are ignored.

    Raises:
      ValueError: If a field is missing or has another type; the message names it.
      TypeError: If the value is no mapping.
    """
    read: _T = _reader_of_fields(cast(Any, kind))(value)
    return read


@cache
def _defaults(kind: Any) -> Mapping[str, Any]:
    """Returns the names of the fields of a class, and their defaults or `MISSING`."""
    if not is_dataclass(kind):
        return {name: kind._field_defaults.get(name, MISSING) for name in kind._fields}
    return {
        item.name: item.default if item.default_factory is MISSING else item.default_factory()
        for item in fields(kind)
    }


@cache
def _reader_of_fields(kind: Any) -> _Reader:
    hints = get_type_hints(kind)
    readers = [(name, _reader(hints[name]), default) for name, default in _defaults(kind).items()]

    def read(value: Any) -> Any:
        fields_read = {}
        for name, read_one, default in readers:
            if name not in _of_type(dict, value):
                if default is MISSING:
                    raise ValueError(f"it has no {name}")
                continue
            try:
                fields_read[name] = read_one(value[name])
            except (AttributeError, LookupError, TypeError, ValueError):
                raise ValueError(f"its {name} is {value[name]!r:.80}") from None
        return kind(**fields_read)

    return read


@cache
def _reader(kind: Any) -> _Reader:
    """Returns the function that reads values of a declared type."""
    if kind in (str, int, bool, float, NoneType):
        return lambda value: _of_type(kind, value)
    if kind is bytes:
        return lambda value: base64.b64decode(_of_type(str, value))
    origin, arguments = get_origin(kind), [_reader(item) for item in get_args(kind) if item is not ...]
    if origin is UnionType:
        return lambda value: _first_of(arguments, value)
    if origin is tuple and ... in get_args(kind):
        return lambda value: tuple(map(arguments[0], _of_type(list, value)))
    if origin is tuple:
        return lambda value: tuple(read(item) for read, item in zip(arguments, value, strict=True))
    if origin is list:
        return lambda value: [*map(arguments[0], _of_type(list, value))]
    if origin is Counter:
        return lambda value: Counter({arguments[0](key): _of_type(int, n) for key, n in value.items()})
    if origin in (Mapping, dict):
        return lambda value: {arguments[0](key): arguments[1](item) for key, item in value.items()}
    if kind is Any or issubclass(kind, Enum):
        return (lambda value: value) if kind is Any else kind
    return getattr(kind, "from_json", None) or _reader_of_fields(kind)


def _of_type(kind: type[Any], value: Any) -> Any:
    allowed = (int, float) if kind is float else (kind,)
    if type(value) not in allowed or (kind is float and not is_finite(value)):
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value


def is_finite(number: float) -> bool:
    """Returns whether a number fits into a float; JSON has integers that do not."""
    return abs(number) <= sys.float_info.max


def _first_of(readers: list[_Reader], value: Any) -> Any:
    """Returns a value as the first type of several that fits."""
    for read in readers[:-1]:
        try:
            return read(value)
        except (AttributeError, TypeError, ValueError):
            continue
    return readers[-1](value)
