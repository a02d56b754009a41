"""Reads and writes the fields of protobuf messages, without protobuf.

A message is a sequence of fields. Each field begins with a tag, which holds its number and its wire type
(https://protobuf.dev/programming-guides/encoding). The functions here accept and refuse what protobuf does.
"""

from __future__ import annotations

from collections.abc import Iterator

#: Wire types.
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_GROUP, _GROUP_END = 3, 4
#: Largest tag (protobuf: field numbers have 29 bits) and largest depth of nested groups.
_MAX_TAG, _MAX_DEPTH = (1 << 32) - 1, 100
_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def write_varint(value: int) -> bytes:
    """Returns a number below 2^64 in the encoding of protobuf."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Returns (number, position after it); raises ValueError or IndexError if it is malformed."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
        if shift > 63:
            raise ValueError("a varint has more than ten bytes")


def fields_in(data: bytes | memoryview, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields (field number, wire type, begin, end) for each field of a message.

    Groups are skipped, as protobuf does, because these messages have none. Nothing after `end` is read.

    Raises:
      ValueError: If the message is malformed.
    """
    if end < len(data):
        data = memoryview(data)[:end]
    try:
        while position < end:
            field, wire, begin = _read_tag(data, position)
            if wire == LENGTH:
                length, begin = read_varint(data, begin)
            elif wire == VARINT:
                length = read_varint(data, begin)[1] - begin
            elif wire == FIXED64:
                length = 8
            elif wire == FIXED32:
                length = 4
            elif wire == _GROUP:
                position = _skip_group(data, begin, field, 1)
                continue
            else:
                raise ValueError(f"wire type {wire} is not used by this message")
            if length > end - begin:
                raise ValueError(f"a field of {length} bytes reaches beyond its message")
            position = begin + length
            yield field, wire, begin, position
    except IndexError:
        raise ValueError("a message ends inside a field") from None


def _read_tag(data: bytes | memoryview, position: int) -> tuple[int, int, int]:
    """Returns (field number, wire type, position after them)."""
    tag, end = read_varint(data, position)
    if tag > _MAX_TAG or end - position > 5 or not tag >> 3:
        raise ValueError(f"{tag} is not a tag of a field")
    return tag >> 3, tag & 7, end


def _skip_group(data: bytes | memoryview, position: int, group: int, depth: int) -> int:
    """Returns the position after a group; raises ValueError or IndexError if it is malformed."""
    if depth > _MAX_DEPTH:
        raise ValueError("groups are nested too deeply")
    while True:
        field, wire, position = _read_tag(data, position)
        if wire == _GROUP_END:
            if field != group:
                raise ValueError("a group is ended by another one's mark")
            return position
        if wire == _GROUP:
            position = _skip_group(data, position, field, depth + 1)
        elif wire == VARINT:
            _, position = read_varint(data, position)
        elif wire == LENGTH:
            length, position = read_varint(data, position)
            position += length
        elif wire in (FIXED64, FIXED32):
            position += 8 if wire == FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire} does not exist")
        if position > len(data):
            raise ValueError("a field reaches beyond its group")
