"""Finds the values in the bytes of a serialized `tf.train.Example`, without copying an image.

A record of a hundred kilobytes consists of an image and a few small values. Finding where they begin and end
takes microseconds. Values are parsed when they are needed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from shardwright.schemas.example import Feature, FeatureType, read_tag, read_varint, skip_group

_VARINT, _FIXED64, _LENGTH, _GROUP, _FIXED32 = 0, 1, 2, 3, 5
_KINDS = {1: FeatureType.BYTES, 2: FeatureType.FLOAT, 3: FeatureType.INT64}
#: A record with more features is not treated as an Example.
MAX_FEATURES = 100_000
#: Maximum number of bytes of a list of numbers to parse, and of values in a list of bytes.
_MAX_NUMBER_BYTES, _MAX_VALUES = 1 << 24, 1_000_000
#: The ranges of a message: begin, end, begin, end, ... Nearly every message has one.
Stretches = tuple[int, ...]


class Span(NamedTuple):
    """A range of a record's bytes."""

    begin: int
    end: int


class NotAnExample(ValueError):
    """The message is well formed, but it is not a `tf.train.Example`."""


def fields_in(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields (field number, wire type, begin, end) for each field of a message.

    Raises:
      ValueError: if the message is malformed.
    """
    try:
        while position < end:
            field, wire, begin = read_tag(data, position)
            if wire == _LENGTH:
                length, begin = read_varint(data, begin)
                position = begin + length
            elif wire == _VARINT:
                _, position = read_varint(data, begin)
            elif wire == _FIXED64:
                position = begin + 8
            elif wire == _FIXED32:
                position = begin + 4
            elif wire == _GROUP:  # these messages have no groups, so skip them as protobuf does
                position = skip_group(data, begin, field, 1)
            else:
                raise ValueError(f"wire type {wire} is not used by this message")
            if position > end:
                raise ValueError("a field reaches beyond its message")
            if wire != _GROUP:
                yield field, wire, begin, position
    except IndexError:
        raise ValueError("a message ends inside a field") from None


class ExampleSpans:
    """The features of a record by name; each is parsed when it is needed.

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
        self.features: dict[str, Stretches] = {}
        for field, wire, begin, end in fields_in(data, 0, len(data)):
            if field == 1 and wire == _LENGTH:
                self._read_entries(begin, end)
            elif field == 2 and wire == _LENGTH:
                raise NotAnExample("it is a tf.train.SequenceExample")

    def _read_entries(self, position: int, end: int) -> None:
        """Reads the entries of the map. If a name occurs twice, the last entry wins, as in protobuf."""
        data, features = self.data, self.features
        try:
            while position < end:
                if len(features) > MAX_FEATURES:
                    raise ValueError(f"it has more than {MAX_FEATURES:,} features")
                begin = position + 2
                if data[position] == 0x0A:
                    length = data[position + 1]
                    if length >= 0x80:
                        length, begin = read_varint(data, position + 1)
                    stop = begin + length
                    # Nearly every entry is a name, then a Feature, and nothing else.
                    if begin + 1 < stop <= end and data[begin] == 0x0A and data[begin + 1] < 0x80:
                        name_end = begin + 2 + data[begin + 1]
                        if name_end + 1 < stop and data[name_end] == 0x12:
                            content = name_end + 2
                            length = data[name_end + 1]
                            if length >= 0x80:
                                length, content = read_varint(data, name_end + 1)
                            if content + length == stop:
                                features[str(data[begin + 2 : name_end], "utf-8")] = (content, stop)
                                position = stop
                                continue
                position = self._read_entry(position, end)
        except IndexError:
            raise ValueError("a message ends inside a field") from None

    def _read_entry(self, position: int, end: int) -> int:
        """Reads one field of the map in any valid encoding; returns where the next field begins."""
        for field, wire, begin, stop in fields_in(self.data, position, end):
            if field == 1 and wire == _LENGTH:
                name, content = "", list[int]()
                for part, part_wire, part_begin, part_end in fields_in(self.data, begin, stop):
                    if part_wire == _LENGTH and part == 1:
                        name = str(self.data[part_begin:part_end], "utf-8")
                    elif part_wire == _LENGTH and part == 2:
                        content += (part_begin, part_end)
                self.features[name] = tuple(content)
            return stop
        return end

    def bytes_of(self, name: str) -> list[Span] | None:
        """Returns the ranges of the values in a list of bytes; None if the feature is absent or another kind.

        Raises:
          ValueError: if the feature is malformed.
        """
        content = self.features.get(name)
        if not content:
            return None
        only = self._only_value(*content) if len(content) == 2 else None
        if only:
            return [only]
        kind, lists = self._list_of(content)
        if kind is not FeatureType.BYTES:
            return None
        found: list[Span] = []
        for position in range(0, len(lists), 2):
            for field, wire, begin, end in fields_in(self.data, lists[position], lists[position + 1]):
                if field == 1 and wire == _LENGTH:
                    found.append(Span(begin, end))
                    if len(found) > _MAX_VALUES:
                        raise ValueError(f"feature {name!r} has more than {_MAX_VALUES:,} values")
        return found

    def _only_value(self, begin: int, end: int) -> Span | None:
        """Returns the range of the only value in a list of bytes, if it is encoded in the usual way."""
        data = self.data
        if end - begin < 4 or data[begin] != 0x0A:
            return None
        try:
            length, first = read_varint(data, begin + 1)
            if first + length != end or not length or data[first] != 0x0A:
                return None
            length, first = read_varint(data, first + 1)
        except IndexError:
            raise ValueError("a message ends inside a field") from None
        return Span(first, end) if first + length == end else None

    def _list_of(self, content: Stretches) -> tuple[FeatureType | None, Stretches]:
        """Returns the kind of a Feature and the ranges of its list's parts, which protobuf merges."""
        kind: FeatureType | None = None
        lists: list[int] = []
        for position in range(0, len(content), 2):
            for field, wire, begin, end in fields_in(self.data, content[position], content[position + 1]):
                if wire == _LENGTH and field in _KINDS:
                    if kind is not _KINDS[field]:
                        kind, lists = _KINDS[field], []
                    lists += (begin, end)
        return kind, tuple(lists)

    def kind_of(self, name: str) -> FeatureType | None:
        """Returns the kind of a feature; None if it is absent or has no kind."""
        return self._list_of(self.features.get(name, ()))[0]

    def packed(self, name: str) -> Span | None:
        """Returns the range of a list of numbers if it is one packed range, else None.

        Floats have 32 bits each; integers are varints.
        """
        kind, lists = self._list_of(self.features.get(name, ()))
        if kind not in (FeatureType.FLOAT, FeatureType.INT64) or len(lists) != 2:
            return None
        packed = list(fields_in(self.data, *lists))
        if len(packed) != 1 or packed[0][:2] != (1, _LENGTH):
            return None
        return Span(*packed[0][2:])

    def feature(self, name: str) -> Feature:
        """Returns a feature with its values; values of a list of bytes are copied.

        Raises:
          ValueError: if it is malformed, or has too many values.
        """
        content = self.features.get(name, ())
        number = self._only_number(*content) if len(content) == 2 else None
        if number is not None:
            return Feature(FeatureType.INT64, [number])
        kind, lists = self._list_of(content)
        if kind is FeatureType.BYTES:
            return Feature(kind, [self.data[span.begin : span.end] for span in self.bytes_of(name) or ()])
        if sum(lists[1::2]) - sum(lists[::2]) > _MAX_NUMBER_BYTES:
            raise ValueError(f"feature {name!r} has too many values")
        if kind is FeatureType.FLOAT:
            return Feature(kind, self._floats(lists))
        return Feature(kind, self._ints(lists) if kind else [])

    def _only_number(self, begin: int, end: int) -> int | None:
        """Returns the only value of a list of integers, if it is encoded in the usual way."""
        data = self.data
        if end - begin < 5 or data[begin] != 0x1A or data[begin + 2] != 0x0A:
            return None
        if data[begin + 1] != end - begin - 2 or data[begin + 3] != end - begin - 4 or data[end - 1] >= 0x80:
            return None
        number, after = read_varint(data, begin + 4)
        if after != end:
            return None
        return number - (1 << 64) if number >= 1 << 63 else number

    def _floats(self, lists: Stretches) -> list[float]:
        values: list[float] = []
        for position in range(0, len(lists), 2):
            for field, wire, begin, end in fields_in(self.data, lists[position], lists[position + 1]):
                if field != 1 or wire not in (_LENGTH, _FIXED32):
                    continue
                if (end - begin) % 4:
                    raise ValueError("a packed float list is not a whole number of floats")
                values += struct.unpack_from(f"<{(end - begin) // 4}f", self.data, begin)
        return values

    def _ints(self, lists: Stretches) -> list[int]:
        values: list[int] = []
        data = self.data
        for place in range(0, len(lists), 2):
            for field, wire, position, end in fields_in(data, lists[place], lists[place + 1]):
                if field != 1 or wire not in (_LENGTH, _VARINT):
                    continue
                if end > position and data[end - 1] >= 0x80:
                    raise ValueError("a packed int64 list ends inside a number")
                while position < end:
                    number, position = read_varint(data, position)
                    values.append(number)
        return [value - (1 << 64) if value >= 1 << 63 else value for value in values]
