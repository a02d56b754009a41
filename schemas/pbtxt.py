"""Protobuf's text format, the format of `label_map.pbtxt` and `schema.pbtxt`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias


class Symbol(str):
    """The name of an enum's value, written without quotes."""


#: The fields of a message in order; a repeated field occurs several times.
Fields: TypeAlias = "Iterable[tuple[str, Value]]"
#: The value of a field: a text, bytes, a number, a name, or the fields of a nested message.
Value: TypeAlias = "str | bytes | int | float | Symbol | Sequence[tuple[str, Value]]"


def message(fields: Fields) -> str:
    """Returns a message as text, with one field per line."""
    return "".join(f"{line}\n" for line in _lines(fields))


def _lines(fields: Fields) -> Iterator[str]:
    for name, value in fields:
        if isinstance(value, str | bytes | int | float):
            yield f"{name}: {_scalar(value)}"
        else:
            yield f"{name} {{"
            yield from (f"  {line}" for line in _lines(value))
            yield "}"


def _scalar(value: str | bytes | int | float | Symbol) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Symbol):
        return str(value)
    if isinstance(value, str | bytes):
        return quoted(value)
    return repr(value)


def quoted(value: str | bytes) -> str:
    """Returns a text (as UTF-8) or bytes in quotes; everything except plain ASCII is escaped."""
    out = []
    for byte in value.encode() if isinstance(value, str) else value:
        char = chr(byte)
        if char in "\"\\'":
            out.append("\\" + char)
        elif 0x20 <= byte < 0x7F:
            out.append(char)
        else:
            out.append(f"\\{byte:03o}")
    return '"' + "".join(out) + '"'
