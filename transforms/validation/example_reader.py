"""Parses records fast: repeated parts are parsed once, and image bytes are not copied."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from shardwright.schemas.example import Feature, FeatureType, parse_example, read_varint, write_varint

#: Number of entries that are cached. In larger datasets most entries occur only once.
_MAX_KNOWN = 10_000
#: Tag of the first field of a message, if that field has a length.
_FIRST_FIELD = 0x0A
#: Lengths from here on take more than one byte; such long entries are not cached.
_SHORT = 0x80

#: Parts of a record that other records may share: whole entries, and the names of the other entries.
Signature = tuple[bytes, ...]


class TakenApart(NamedTuple):
    """Features of a parsed record.

    Attributes:
      features: Mapping of name to feature. An image may be a memoryview into the record.
      signature: Equal for records whose repeated parts are all equal. None if it is not known.
    """

    features: dict[str, Feature]
    signature: Signature | None


class EntryReader:
    """Parser for records. Use one for all records of a shard or a dataset.

    Args:
      repeating: Names of features whose values occur in many records.
      picture: Name of the feature whose bytes are not copied. Empty if there is none.
    """

    def __init__(self, repeating: Collection[str], picture: str) -> None:
        self._repeating = frozenset(name.encode() for name in repeating)
        self._picture = picture.encode()
        self._known: dict[bytes, tuple[str, Feature]] = {}

    def read(self, data: bytes) -> TakenApart:
        """Returns the features of a serialized `tf.train.Example`.

        Raises:
          ValueError: If the bytes are not such a message.
        """
        try:
            found = self._read(data)
        except (IndexError, ValueError):
            found = None
        return found or TakenApart(parse_example(data), None)

    def _read(self, data: bytes) -> TakenApart | None:
        """Returns the features of a record in the usual encoding; None for any other record."""
        if not data or data[0] != _FIRST_FIELD:
            return None
        length, position = read_varint(data, 1)
        size = len(data)
        if position + length != size:
            return None
        known, features = self._known, dict[str, Feature]()
        signature: list[bytes] = []
        while position < size:
            length, begin = data[position + 1], position + 2
            if length < _SHORT:
                end = begin + length
                entry = data[begin:end]
                same = known.get(entry)
                if same is not None and data[position] == _FIRST_FIELD:
                    signature.append(entry)
                    features[same[0]] = same[1]
                    position = end
                    continue
            else:
                length, begin = read_varint(data, position + 1)
                end, entry = begin + length, b""
            if end > size or data[position] != _FIRST_FIELD:
                return None
            found = self._read_entry(data, begin, end)
            if found is None:
                return None
            name, feature = found
            features[str(name, "utf-8")] = feature
            if name in self._repeating:
                entry = entry or data[begin:end]
                if len(known) >= _MAX_KNOWN:
                    known.clear()
                if len(entry) < _SHORT:
                    known[entry] = str(name, "utf-8"), feature
                signature.append(entry)
            else:
                signature.append(name)
            position = end
        if len(features) != len(signature):  # a name occurs twice
            return None
        return TakenApart(features, tuple(signature))

    def _read_entry(self, data: bytes, begin: int, end: int) -> tuple[bytes, Feature] | None:
        """Returns the name and the values of an entry; None if its encoding is unusual."""
        length = data[begin + 1]
        name_begin = begin + 2
        name_end = name_begin + length
        if data[begin] != _FIRST_FIELD or length >= 0x80 or name_end + 1 >= end or data[name_end] != 0x12:
            return None
        name = data[name_begin:name_end]
        first = name_end + 1
        # The Feature, its list of bytes and the one value in the list each begin with a length.
        for last in (False, False, True):
            length = data[first]
            first += 1
            if length >= 0x80:
                length, first = read_varint(data, first - 1)
            if first + length != end:
                return self._read_other(data, begin, end, name)
            if last:
                break
            if first >= end or data[first] != _FIRST_FIELD:
                return self._read_other(data, begin, end, name)
            first += 1
        value = memoryview(data)[first:end] if name == self._picture else data[first:end]
        return name, Feature(FeatureType.BYTES, (value,))

    def _read_other(self, data: bytes, begin: int, end: int, name: bytes) -> tuple[bytes, Feature] | None:
        """Parses any entry that is not a single value of bytes, with the general parser."""
        found = parse_example(_alone(data[begin:end]))
        feature = found.get(str(name, "utf-8"))
        return None if feature is None or len(found) != 1 else (name, feature)


def _alone(entry: bytes) -> bytes:
    """Returns a record that contains only this entry."""
    entry = b"\x0a" + write_varint(len(entry)) + entry
    return b"\x0a" + write_varint(len(entry)) + entry
