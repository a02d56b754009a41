"""Reads and writes serialized `tf.train.Example` messages without TensorFlow.

The message is `Example { Features features = 1 }`, `Features { map<string, Feature> feature = 1 }`
and `Feature { oneof { BytesList = 1, FloatList = 2, Int64List = 3 } }`, where each list holds `repeated value
= 1`, with numbers packed (tensorflow/core/example/feature.proto). Features are written in the order of their
names' UTF-8 bytes, as TensorFlow's deterministic serialization does. If one name is a prefix of another, the
shorter name comes first, as in C++; Python's protobuf writes it last.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple


class FeatureType(StrEnum):
    """The three kinds of list that a feature can hold."""

    BYTES = "bytes"
    FLOAT = "float"
    INT64 = "int64"


class Feature(NamedTuple):
    """A feature's kind and its values, in order; `type` is None if the feature has no kind."""

    type: FeatureType | None
    values: Sequence[Any]


#: Wire types.
_VARINT, _FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = 0, 1, 2, 3, 4, 5
#: Largest tag (protobuf: field numbers have 29 bits) and largest depth of nested groups.
_MAX_TAG, _MAX_DEPTH = (1 << 32) - 1, 100
_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))
_FIELD_OF = {FeatureType.BYTES: 1, FeatureType.FLOAT: 2, FeatureType.INT64: 3}
_TYPE_OF = {field: type_ for type_, field in _FIELD_OF.items()}


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


@lru_cache(maxsize=4096)
def _entry_key(name: str) -> bytes:
    """Returns the first field of a map entry, its key, and the tag of the second field."""
    key = name.encode()
    return b"".join((b"\x0a", write_varint(len(key)), key, b"\x12"))


def _single_value(type_: FeatureType, value: Any) -> list[bytes]:
    """Returns a Feature message of one bytes or int64 value in pieces."""
    if type_ is FeatureType.BYTES:
        head = b"\x0a" + write_varint(len(value))
        return [b"\x0a" + write_varint(len(head) + len(value)) + head, value]
    packed = write_varint(int(value) & 0xFFFFFFFFFFFFFFFF)
    return [b"\x1a" + write_varint(len(packed) + 2) + b"\x0a" + write_varint(len(packed)) + packed]


@lru_cache(maxsize=64)
def _in_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns feature names in the order in which they are written."""
    return tuple(sorted(names, key=str.encode))


def _feature_parts(feature: Feature) -> list[bytes]:
    """Returns a Feature message in pieces, so that a large image is copied only once."""
    if feature.type is None:
        return []
    if len(feature.values) == 1 and feature.type is not FeatureType.FLOAT:  # true of nearly all features
        return _single_value(feature.type, feature.values[0])
    parts: list[bytes] = []
    if feature.type is FeatureType.BYTES:
        for value in feature.values:
            parts += (b"\x0a", write_varint(len(value)), value)
    elif len(feature.values):
        if feature.type is FeatureType.FLOAT:
            packed = struct.pack(f"<{len(feature.values)}f", *feature.values)
        else:
            packed = b"".join(write_varint(int(value) & 0xFFFFFFFFFFFFFFFF) for value in feature.values)
        parts = [b"\x0a", write_varint(len(packed)), packed]
    length = sum(map(len, parts))
    return [_ONE_BYTE[_FIELD_OF[feature.type] << 3 | _LENGTH], write_varint(length), *parts]


def encode_example(features: Mapping[str, Feature]) -> bytes:
    """Serializes features as `tf.train.Example`, equal to TensorFlow's deterministic bytes."""
    entries: list[bytes] = []
    total = 0
    for name in _in_order(tuple(features)):
        value = _feature_parts(features[name])
        value_length = sum(map(len, value))
        head = _entry_key(name) + write_varint(value_length)
        entry_length = len(head) + value_length
        prefix = b"\x0a" + write_varint(entry_length)
        total += len(prefix) + entry_length
        entries += (prefix, head, *value)
    return b"".join((b"\x0a", write_varint(total), *entries))


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


def read_tag(data: bytes | memoryview, position: int) -> tuple[int, int, int]:
    """Returns (field number, wire type, position after them)."""
    tag, end = read_varint(data, position)
    if tag > _MAX_TAG or end - position > 5 or not tag >> 3:
        raise ValueError(f"{tag} is no tag of a field")
    return tag >> 3, tag & 7, end


def skip_group(data: bytes | memoryview, position: int, group: int, depth: int) -> int:
    """Returns the position after a group; raises ValueError or IndexError if it is malformed."""
    if depth > _MAX_DEPTH:
        raise ValueError("groups are nested too deeply")
    while True:
        field, wire, position = read_tag(data, position)
        if wire == _GROUP_END:
            if field != group:
                raise ValueError("a group is ended by another one's mark")
            return position
        if wire == _GROUP:
            position = skip_group(data, position, field, depth + 1)
        elif wire == _VARINT:
            _, position = read_varint(data, position)
        elif wire == _LENGTH:
            length, position = read_varint(data, position)
            position += length
        elif wire in (_FIXED64, _FIXED32):
            position += 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire} does not exist")
        if position > len(data):
            raise ValueError("a field reaches beyond its group")


def _fields(data: memoryview) -> Iterator[tuple[int, int, memoryview | int]]:
    """Yields (field number, wire type, value) of a message; raises ValueError if it is malformed."""
    position = 0
    size = len(data)
    try:
        while position < size:
            field, wire, position = read_tag(data, position)
            if wire == _GROUP:  # these messages have no groups, so skip them as protobuf does
                position = skip_group(data, position, field, 1)
                continue
            if wire == _VARINT:
                number, position = read_varint(data, position)
                yield field, wire, number
                continue
            if wire == _LENGTH:
                length, position = read_varint(data, position)
            elif wire == _FIXED64:
                length = 8
            elif wire == _FIXED32:
                length = 4
            else:
                raise ValueError(f"wire type {wire} is not used by this message")
            if length > size - position:
                raise ValueError(f"a field of {length} bytes reaches beyond its message")
            yield field, wire, data[position : position + length]
            position += length
    except IndexError:
        raise ValueError("a message ends inside a field") from None


def _parse_bytes(data: memoryview) -> list[bytes]:
    return [
        bytes(value)
        for field, wire, value in _fields(data)
        if field == 1 and wire == _LENGTH and isinstance(value, memoryview)
    ]


def _parse_floats(data: memoryview) -> list[float]:
    values: list[float] = []
    for field, wire, value in _fields(data):
        if field != 1 or isinstance(value, int) or wire == _FIXED64:
            continue
        if len(value) % 4:
            raise ValueError("a packed float list is not a whole number of floats")
        values.extend(struct.unpack(f"<{len(value) // 4}f", value))
    return values


def _parse_ints(data: memoryview) -> list[int]:
    values: list[int] = []
    for field, wire, value in _fields(data):
        if field != 1:
            continue
        if isinstance(value, int):
            values.append(value)
        elif wire == _LENGTH:
            position = 0
            try:
                while position < len(value):
                    number, position = read_varint(value, position)
                    values.append(number)
            except IndexError:
                raise ValueError("a packed int64 list ends inside a number") from None
    return [value - (1 << 64) if value >= 1 << 63 else value for value in values]


_PARSERS: dict[FeatureType, Callable[[memoryview], list[Any]]] = {
    FeatureType.BYTES: _parse_bytes,
    FeatureType.FLOAT: _parse_floats,
    FeatureType.INT64: _parse_ints,
}


def _parse_feature(data: memoryview) -> Feature:
    feature = Feature(None, [])
    for field, wire, value in _fields(data):
        if wire == _LENGTH and field in _TYPE_OF and isinstance(value, memoryview):
            type_ = _TYPE_OF[field]
            parsed: list[Any] = _PARSERS[type_](value)
            if feature.type is type_:  # protobuf merges repeated occurrences
                parsed = [*feature.values, *parsed]
            feature = Feature(type_, parsed)
    return feature


def parse_example(data: bytes) -> dict[str, Feature]:
    """Parses a serialized `tf.train.Example`.

    Raises:
      ValueError: if the bytes are not such a message.
    """
    features: dict[str, Feature] = {}
    for field, wire, value in _fields(memoryview(data)):
        if field != 1:
            continue
        if wire != _LENGTH or not isinstance(value, memoryview):
            continue
        for entry_field, entry_wire, entry in _fields(value):
            if entry_field != 1 or entry_wire != _LENGTH or not isinstance(entry, memoryview):
                continue
            name, content = "", memoryview(b"")
            for part_field, part_wire, part in _fields(entry):
                if part_wire != _LENGTH or not isinstance(part, memoryview):
                    continue
                if part_field == 1:
                    name = bytes(part).decode("utf-8")  # UnicodeDecodeError is a ValueError
                elif part_field == 2:
                    # protobuf merges repeated occurrences
                    content = memoryview(bytes(content) + bytes(part)) if content else part
            features[name] = _parse_feature(content)
    return features
