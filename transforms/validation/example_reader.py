"""Takes records apart fast: what many of them hold alike is parsed once, and no picture is copied."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from shardwright.schemas.example import Feature, FeatureType, parse_example, read_varint, write_varint

#: Entries that are remembered; where there are more, most are met but once.
_MAX_KNOWN = 10_000
#: The tag of a message's first field, where that has a length.
_FIRST_FIELD = 0x0A
#: Bytes from which on a length takes more than one byte; entries so long are not remembered.
_SHORT = 0x80

#: What of a record other records may have alike: the entries themselves, and the names of the others.
Signature = tuple[bytes, ...]


class TakenApart(NamedTuple):
    """A record's features.

    Attributes:
      features: by name; a picture may be a memoryview into the record.
      signature: equal for records that have all in common that repeats; None if that is not known.
    """

    features: dict[str, Feature]
    signature: Signature | None


class EntryReader:
    """Takes records apart; one for all records of a shard, or of a dataset.

    Args:
      repeating: names of features of which many records have the same values.
      picture: name of the feature whose bytes are not to be copied; empty for none.
    """

    def __init__(self, repeating: Collection[str], picture: str) -> None:
        self._repeating = frozenset(name.encode() for name in repeating)
        self._picture = picture.encode()
        self._known: dict[bytes, tuple[str, Feature]] = {}

    def read(self, data: bytes) -> TakenApart:
        """Returns the features of a serialised `tf.train.Example`.

        Raises:
          ValueError: if the bytes are no such message.
        """
        try:
            found = self._read(data)
        except (IndexError, ValueError):
            found = None
        return found or TakenApart(parse_example(data), None)

    def _read(self, data: bytes) -> TakenApart | None:
        """Returns the features of a record that is written as nearly all are; None of any other."""
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
        if len(features) != len(signature):  # a name stands twice
            return None
        return TakenApart(features, tuple(signature))

    def _read_entry(self, data: bytes, begin: int, end: int) -> tuple[bytes, Feature] | None:
        """Returns the name and the values of an entry; None if it is written as few are."""
        length = data[begin + 1]
        name_begin = begin + 2
        name_end = name_begin + length
        if data[begin] != _FIRST_FIELD or length >= 0x80 or name_end + 1 >= end or data[name_end] != 0x12:
            return None
        name = data[name_begin:name_end]
        first = name_end + 1
        # The Feature, its list of bytes and the one value of that each begin with a length.
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
        """Returns an entry that is no single value of bytes: parsed as any message, of this entry alone."""
        found = parse_example(_alone(data[begin:end]))
        feature = found.get(str(name, "utf-8"))
        return None if feature is None or len(found) != 1 else (name, feature)


def _alone(entry: bytes) -> bytes:
    """Returns a record that has one entry only."""
    entry = b"\x0a" + write_varint(len(entry)) + entry
    return b"\x0a" + write_varint(len(entry)) + entry
