"""Reads and writes serialized `tf.train.Example` messages without TensorFlow.

The message is `Example { Features features = 1 }`, `Features { map<string, Feature> feature = 1 }`
and `Feature { oneof { BytesList = 1, FloatList = 2, Int64List = 3 } }`, where each list holds `repeated value
= 1`, with numbers packed (tensorflow/core/example/feature.proto). Features are written in the order of their
names' UTF-8 bytes, as TensorFlow's deterministic serialization does. If one name is a prefix of another, the
shorter name comes first, as in C++; Python's protobuf writes it last.

All readers share four steps: `entries_in` finds the entries of the map, `read_entry` the name and the
Feature in an entry, `_lists_in` the lists of a Feature, and `_value_spans`, `_floats_in` and `_ints_in` the
values of a list. `parse_example` takes them all at once; `ExampleSpans` takes the last two when a value is
asked for. Each step first tries the encoding that all writers use. It leaves anything else to `fields_in`,
which alone decides what is well formed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from shardwright.schemas.str_enum import StrEnum
from shardwright.schemas.wire_format import (
    FIXED32,
    LENGTH,
    MAX_VARINT_BYTES,
    VARINT,
    fields_in,
    read_varint,
    write_varint,
)


class FeatureType(StrEnum):
    """The three kinds of list that a feature can hold."""

    BYTES = "bytes"
    FLOAT = "float"
    INT64 = "int64"


class Feature(NamedTuple):
    """A feature's kind and its values, in order; `type` is None if the feature has no kind."""

    type: FeatureType | None
    values: Sequence[Any]


_FIELD_OF = {FeatureType.BYTES: 1, FeatureType.FLOAT: 2, FeatureType.INT64: 3}
_TYPE_OF = {field: type_ for type_, field in _FIELD_OF.items()}
_BYTES = _FIELD_OF[FeatureType.BYTES]
#: Tag of a list in a Feature -> number of its field.
_FIELD_OF_TAG = {field << 3 | LENGTH: field for field in _TYPE_OF}
#: Tag of the first and of the second field of a message, if it has a length.
_FIRST, _SECOND = 1 << 3 | LENGTH, 2 << 3 | LENGTH
#: Lengths from here on take more than one byte.
_LONG = 0x80
#: Number of bytes that a tag of one byte and a varint take at most.
_HEAD_BYTES = 1 + MAX_VARINT_BYTES
#: `ExampleSpans` refuses a record with more features.
MAX_FEATURES = 100_000
#: Maximum number of bytes of a list of numbers that `ExampleSpans` parses, and of values in a list of bytes.
_MAX_NUMBER_BYTES, _MAX_VALUES = 1 << 24, 1_000_000
#: Bytes of packed varints from which NumPy decodes them faster than Python, and that it decodes at a time.
_MANY, _BLOCK = 64, 1 << 16
#: The ranges of a message: begin, end, begin, end, ... Nearly every message has one.
Spans = tuple[int, ...]


@lru_cache(maxsize=4096)
def _entry_key(name: str) -> bytes:
    """Returns the first field of a map entry, its key, and the tag of the second field."""
    key = name.encode()
    return b"".join((b"\x0a", write_varint(len(key)), key, b"\x12"))


#: Bytes values from here on have lengths that hardly repeat.
_REPEATING_BYTES = 1 << 10


@lru_cache(maxsize=4096)
def _head_of_bytes(name: str, length: int) -> bytes:
    """Returns an entry of one bytes value without the value, which has this length."""
    head = b"\x0a" + write_varint(length)
    key = _entry_key(name)
    feature = b"\x0a" + write_varint(len(head) + length) + head
    key += write_varint(len(feature) + length)
    return b"\x0a" + write_varint(len(key) + len(feature) + length) + key + feature


@lru_cache(maxsize=4096)
def _entry_of_int(name: str, value: int) -> bytes:
    """Returns an entry of one int64 value."""
    packed = write_varint(value & 0xFFFFFFFFFFFFFFFF)
    feature = b"\x1a" + write_varint(len(packed) + 2) + b"\x0a" + write_varint(len(packed)) + packed
    entry = _entry_key(name) + write_varint(len(feature)) + feature
    return b"\x0a" + write_varint(len(entry)) + entry


@lru_cache(maxsize=64)
def _in_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns feature names in the order in which they are written."""
    return tuple(sorted(names, key=str.encode))


def _feature_parts(feature: Feature) -> list[bytes]:
    """Returns a Feature message in pieces, so that a large image is copied only once."""
    if feature.type is None:
        return []
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
    return [write_varint(_FIELD_OF[feature.type] << 3 | LENGTH), write_varint(length), *parts]


def encode_example(features: Mapping[str, Feature]) -> bytes:
    """Serializes features as `tf.train.Example`, equal to TensorFlow's deterministic bytes."""
    entries: list[bytes] = []
    for name in _in_order(tuple(features)):
        type_, values = features[name]
        # Nearly all features have one value, and most values are as long as, or equal to, an earlier one.
        if len(values) == 1 and type_ is FeatureType.BYTES:
            value = values[0]
            head_of = _head_of_bytes if len(value) < _REPEATING_BYTES else _head_of_bytes.__wrapped__
            entries += (head_of(name, len(value)), value)
        elif len(values) == 1 and type_ is FeatureType.INT64:
            entries.append(_entry_of_int(name, int(values[0])))
        else:
            entries += _entry_parts(name, _feature_parts(features[name]))
    return b"".join((b"\x0a", write_varint(sum(map(len, entries))), *entries))


def _entry_parts(name: str, feature: list[bytes]) -> list[bytes]:
    """Returns the entry of a Feature message, both in pieces."""
    length = sum(map(len, feature))
    head = _entry_key(name) + write_varint(length)
    return [b"\x0a" + write_varint(len(head) + length), head, *feature]


class Span(NamedTuple):
    """A range of a record's bytes."""

    begin: int
    end: int


class NotAnExample(ValueError):
    """The message is well formed, but it is not a `tf.train.Example`."""


def parse_example(data: bytes) -> dict[str, Feature]:
    """Parses a serialized `tf.train.Example`.

    Raises:
      ValueError: if the bytes are not such a message.
    """
    features: dict[str, Feature] = {}
    for begin, end in entries_in(data):
        name, content = read_entry(data, begin, end)
        features[name] = read_feature(data, content)
    return features


def entries_in(data: bytes, sequences: bool = True) -> Iterator[tuple[int, int]]:
    """Yields (begin, end) of each entry of the map from names to Features.

    Args:
      data: the serialized Example.
      sequences: whether a SequenceExample counts as an Example with the features of its context.

    Raises:
      NotAnExample: if it is a SequenceExample, unless `sequences`.
      ValueError: if the message is malformed.
    """
    if len(data) >= _HEAD_BYTES and data[0] == _FIRST:
        length, begin = read_varint(data, 1)
        if begin + length == len(data):
            return _entries_of_map(data, begin, len(data))
    return _entries_of_any(data, sequences)


def _entries_of_any(data: bytes, sequences: bool) -> Iterator[tuple[int, int]]:
    for field, wire, begin, end in fields_in(data, 0, len(data)):
        if field == 2 and wire == LENGTH and not sequences:
            raise NotAnExample("it is a tf.train.SequenceExample")
        if field == 1 and wire == LENGTH:
            yield from _entries_of_map(data, begin, end)


def _entries_of_map(data: bytes, position: int, end: int) -> Iterator[tuple[int, int]]:
    last = end - _HEAD_BYTES
    while position <= last and data[position] == _FIRST:
        length, begin = data[position + 1], position + 2
        if length >= _LONG:
            length, begin = read_varint(data, position + 1)
        stop = begin + length
        if stop > end:
            break
        yield begin, stop
        position = stop
    if position < end:
        for field, wire, begin, stop in fields_in(data, position, end):
            if field == 1 and wire == LENGTH:
                yield begin, stop


def read_entry(data: bytes, begin: int, end: int) -> tuple[str, Spans]:
    """Returns the name in an entry of the map, and the ranges of its Feature.

    Raises:
      ValueError: if the entry is malformed.
    """
    if end - begin >= 4 and data[begin] == _FIRST and data[begin + 1] < _LONG:
        name_begin = begin + 2
        name_end = name_begin + data[begin + 1]
        if name_end + 1 < end and data[name_end] == _SECOND:
            name = str(data[name_begin:name_end], "utf-8")
            length, content = data[name_end + 1], name_end + 2
            if length >= _LONG and end - name_end >= _HEAD_BYTES:
                length, content = read_varint(data, name_end + 1)
            if content + length == end:
                return name, (content, end)
    name, found = "", list[int]()
    for field, wire, part_begin, part_end in fields_in(data, begin, end):
        if wire == LENGTH and field == 1:
            name = str(data[part_begin:part_end], "utf-8")  # UnicodeDecodeError is a ValueError
        elif wire == LENGTH and field == 2:
            found += (part_begin, part_end)  # protobuf merges repeated occurrences
    return name, tuple(found)


def read_feature(data: bytes | memoryview, content: Spans) -> Feature:
    """Returns a Feature with its values; values of a list of bytes are copied, unless `data` is a memoryview.

    Raises:
      ValueError: if it is malformed.
    """
    if len(content) == 2:
        begin, end = content
        inside = _only_field(data, begin, end)
        if inside and data[begin] in _FIELD_OF_TAG:
            field = _FIELD_OF_TAG[data[begin]]
            return Feature(_TYPE_OF[field], _VALUES[field](data, inside, end))
    type_ = 0
    values: list[Any] = []
    for field, begin, end in _lists_in(data, content):
        found = _VALUES[field](data, begin, end)
        if field == type_:  # protobuf merges repeated occurrences
            values += found
        else:
            type_, values = field, found
    return Feature(_TYPE_OF.get(type_), values)


def _only_field(data: bytes | memoryview, position: int, end: int) -> int:
    """Returns where the content of a message's only field begins; 0 if the message is anything else.

    The field has a length and a tag of one byte, which nearly all messages in an Example have.
    """
    if end - position < 2:
        return 0
    length, begin = data[position + 1], position + 2
    if length >= _LONG and end - position >= _HEAD_BYTES:
        length, begin = read_varint(data, position + 1)
    return begin if begin + length == end else 0


def _lists_in(data: bytes | memoryview, content: Spans) -> Iterator[tuple[int, int, int]]:
    """Yields (field number, begin, end) of each list in a Feature."""
    for begin, end in zip(content[::2], content[1::2]):
        for field, wire, list_begin, list_end in fields_in(data, begin, end):
            if wire == LENGTH and field in _TYPE_OF:
                yield field, list_begin, list_end


def _value_spans(data: bytes | memoryview, position: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields (begin, end) of each value of a list of bytes."""
    while end - position >= 2 and data[position] == _FIRST:
        length, begin = data[position + 1], position + 2
        if length >= _LONG:
            if end - position < _HEAD_BYTES:
                break
            length, begin = read_varint(data, position + 1)
        if length > end - begin:
            break
        position = begin + length
        yield begin, position
    if position < end:
        for field, wire, begin, stop in fields_in(data, position, end):
            if field == 1 and wire == LENGTH:
                yield begin, stop


def _bytes_in(data: bytes | memoryview, begin: int, end: int) -> list[bytes | memoryview]:
    first = _only_field(data, begin, end)
    if first and data[begin] == _FIRST:
        return [data[first:end]]
    return [data[first:last] for first, last in _value_spans(data, begin, end)]


def _floats_in(data: bytes | memoryview, begin: int, end: int) -> list[float]:
    first = _only_field(data, begin, end)
    if first and data[begin] == _FIRST and not (end - first) % 4:
        return list(struct.unpack_from(f"<{(end - first) // 4}f", data, first))
    values: list[float] = []
    for field, wire, first, last in fields_in(data, begin, end):
        if field == 1 and wire in (LENGTH, FIXED32):
            if (last - first) % 4:
                raise ValueError("a packed float list is not a whole number of floats")
            values += struct.unpack_from(f"<{(last - first) // 4}f", data, first)
    return values


def _ints_in(data: bytes | memoryview, begin: int, end: int) -> list[int]:
    first = _only_field(data, begin, end)
    if first and data[begin] == _FIRST:
        return _varints(bytes(data[first:end]))
    values: list[int] = []
    for field, wire, first, last in fields_in(data, begin, end):
        if field == 1 and wire in (LENGTH, VARINT):
            values += _varints(bytes(data[first:last]))
    return values


def _varints(packed: bytes) -> list[int]:
    """Returns the signed 64-bit numbers of consecutive varints."""
    if packed.isascii():  # each has one byte
        return list(packed)
    if len(packed) >= _MANY:
        return _many_varints(packed)
    values: list[int] = []
    position = 0
    try:
        while position < len(packed):
            number, position = read_varint(packed, position)
            values.append(number - (1 << 64) if number >= 1 << 63 else number)
    except IndexError:
        raise ValueError("a packed int64 list ends inside a number") from None
    return values


def _many_varints(packed: bytes) -> list[int]:
    import numpy as np  # `shardwright layouts` starts without it

    values: list[int] = []
    position = 0
    while position < len(packed):
        block = np.frombuffer(packed, np.uint8, min(_BLOCK, len(packed) - position), position)
        ends = np.flatnonzero(block < 0x80) + 1
        starts = np.concatenate(([0], ends[:-1]))
        if not len(ends) and len(block) < MAX_VARINT_BYTES:
            raise ValueError("a packed int64 list ends inside a number")
        if not len(ends) or (ends - starts).max() > MAX_VARINT_BYTES:
            raise ValueError("a varint has more than ten bytes")
        block = block[: ends[-1]]
        shifts = 7 * (np.arange(len(block)) - np.repeat(starts, ends - starts))
        parts = (block & 0x7F).astype(np.uint64) << shifts.astype(np.uint64)
        values += np.bitwise_or.reduceat(parts, starts).view(np.int64).tolist()
        position += len(block)
    return values


#: Number of a list's field -> function that returns the values.
_VALUES: Mapping[int, Callable[[bytes | memoryview, int, int], list[Any]]] = {
    1: _bytes_in,
    2: _floats_in,
    3: _ints_in,
}


class ExampleSpans:
    """The features of a record by name; each is parsed when it is needed, and no image is copied.

    A record of a hundred kilobytes consists of an image and a few small values. Finding where they begin and
    end takes microseconds. Records may come from anywhere, so the number of features and values is limited.

    Attributes:
      data: the serialized Example.
      features: name -> ranges of its Feature message.

    Raises:
      NotAnExample: if it is a SequenceExample.
      ValueError: if it is malformed.
    """

    __slots__ = ("data", "features")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.features: dict[str, Spans] = {}
        features = self.features
        for begin, end in entries_in(data, sequences=False):
            name, content = read_entry(data, begin, end)
            features[name] = content  # if a name occurs twice, the last wins
            if len(features) > MAX_FEATURES:
                raise ValueError(f"it has more than {MAX_FEATURES:,} features")

    def bytes_of(self, name: str) -> list[Span] | None:
        """Returns the ranges of the values in a list of bytes; None if the feature is absent or another kind.

        Raises:
          ValueError: if it is malformed, or has too many values.
        """
        data, content = self.data, self.features.get(name, ())
        if len(content) == 2:
            begin, end = content
            inside = _only_field(data, begin, end)
            first = inside and _only_field(data, inside, end)
            if first and data[begin] == data[inside] == _FIRST:
                return [Span(first, end)]
        found: list[Span] = []
        lists = self._lists(name)
        for field, begin, end in lists:
            if field != _BYTES:
                return None
            for span in _value_spans(data, begin, end):
                found.append(Span(*span))
                if len(found) > _MAX_VALUES:
                    raise ValueError(f"feature {name!r} has more than {_MAX_VALUES:,} values")
        return found if lists else None

    def _lists(self, name: str) -> Sequence[tuple[int, int, int]]:
        """Returns (field number, begin, end) of the lists that protobuf merges to the values of a feature."""
        lists = list(_lists_in(self.data, self.features.get(name, ())))
        first = len(lists) - 1
        while first > 0 and lists[first - 1][0] == lists[-1][0]:
            first -= 1
        return lists[max(first, 0) :]

    def kind_of(self, name: str) -> FeatureType | None:
        """Returns the kind of a feature; None if it is absent or has no kind."""
        lists = self._lists(name)
        return _TYPE_OF[lists[0][0]] if lists else None

    def packed(self, name: str) -> Span | None:
        """Returns the range of a list of numbers if it is one packed range, else None.

        Floats have 32 bits each; integers are varints.
        """
        lists = self._lists(name)
        if len(lists) != 1 or lists[0][0] == _BYTES:
            return None
        numbers = [
            (wire, begin, end)
            for field, wire, begin, end in fields_in(self.data, *lists[0][1:])
            if field == 1
        ]
        return Span(*numbers[0][1:]) if len(numbers) == 1 and numbers[0][0] == LENGTH else None

    def feature(self, name: str) -> Feature:
        """Returns a feature with its values; values of a list of bytes are copied.

        Raises:
          ValueError: if it is malformed, or has too many values.
        """
        content = self.features.get(name, ())
        if len(content) > 2 or (content and content[1] - content[0] > _MAX_VALUES):
            self._check_size(name)
        return read_feature(self.data, content)

    def _check_size(self, name: str) -> None:
        lists = self._lists(name)
        if lists and lists[0][0] == _BYTES:
            self.bytes_of(name)  # counts the values
        elif sum(end - begin for _, begin, end in lists) > _MAX_NUMBER_BYTES:
            raise ValueError(f"feature {name!r} has too many values")
