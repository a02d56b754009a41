"""Parses the headers of Parquet's pages, which are structs in Thrift's compact protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

#: Kinds of pages (`PageType` of parquet.thrift).
DATA, INDEX, DICTIONARY, DATA_V2 = 0, 1, 2, 3
#: Deepest nesting of structs and lists; headers have two levels.
_MAX_DEPTH = 8
#: Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_MAX_BITS = 70


class Incomplete(Exception):
    """Raised if the data ends inside a struct."""


class PageHeader(NamedTuple):
    """Header of a page.

    Attributes:
      kind: Kind of page.
      length: Number of bytes of the header itself.
      packed: Number of bytes after the header, as stored.
      unpacked: Number of bytes after decompression.
      crc32: Checksum of the stored bytes; None if the writer stored none.
      values: Number of values, including nulls.
      encoding: Number of the encoding of the values.
      levels: Bytes of levels in front of the values that are never compressed; only `DATA_V2` has them.
      compressed: Whether the values are compressed, if the column is.
    """

    kind: int
    length: int
    packed: int
    unpacked: int
    crc32: int | None
    values: int
    encoding: int
    levels: int
    compressed: bool


def page_header(data: bytes) -> PageHeader:
    """Returns the header at the beginning of some bytes.

    Raises:
      Incomplete: If the data ends inside the header.
      ValueError: If there is no header.
    """
    reader = _Reader(data)
    fields = reader.struct(0)
    kind, unpacked, packed = (_number(fields, place) for place in (1, 2, 3))
    inner = fields.get({DATA: 5, INDEX: 6, DICTIONARY: 7, DATA_V2: 8}.get(kind, -1), {})
    if not isinstance(inner, Mapping) or min(packed, unpacked) < 0:
        raise ValueError("its header is wrong")
    values, encoding, levels = 0, -1, 0
    if kind in (DATA, DICTIONARY):
        values, encoding = _number(inner, 1), _number(inner, 2)
    elif kind == DATA_V2:
        values, encoding = _number(inner, 1), _number(inner, 4)
        levels = _number(inner, 5) + _number(inner, 6)
        if _number(inner, 6) or not 0 <= levels <= min(packed, unpacked):
            raise ValueError("its levels are wrong")
    if values < 0:
        raise ValueError("its number of values is negative")
    crc = fields.get(4)
    return PageHeader(
        kind=kind,
        length=reader.position,
        packed=packed,
        unpacked=unpacked,
        crc32=crc & 0xFFFFFFFF if isinstance(crc, int) else None,
        values=values,
        encoding=encoding,
        levels=levels,
        compressed=inner.get(7, True) is not False,
    )


def _number(fields: Mapping[int, Any], place: int) -> int:
    value = fields.get(place)
    if type(value) is not int:
        raise ValueError("its header lacks a number")
    return value


class _Reader:
    """Reads values of the compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def struct(self, depth: int) -> dict[int, Any]:
        """Returns the fields of a struct by their numbers."""
        if depth > _MAX_DEPTH:
            raise ValueError("its header is nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 0x0F
            number = number + step if step else self._zigzag()
            fields[number] = (kind == _TRUE) if kind in (_TRUE, _FALSE) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._byte()
        if kind in (_I16, _I32, _I64):
            return self._zigzag()
        if kind == _DOUBLE:
            return self._skip(8)
        if kind == _BINARY:
            return self._skip(self._varint())
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_LIST, _SET):
            return self._list(depth + 1)
        raise ValueError("its header has a value of an unknown type")

    def _list(self, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise ValueError("its header is nested too deeply")
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._varint()
        for _ in range(count):  # ends with the data, because every element has at least a byte
            self._value(head & 0x0F, depth)

    def _skip(self, length: int) -> None:
        if self.position + length > len(self._data):
            raise Incomplete
        self.position += length

    def _byte(self) -> int:
        if self.position >= len(self._data):
            raise Incomplete
        self.position += 1
        return self._data[self.position - 1]

    def _varint(self) -> int:
        value = shift = 0
        while shift < _MAX_BITS:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError("its header has a number that is too long")

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
