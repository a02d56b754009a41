"""Parses the records of a shard, which repeat many values, and keeps what their entries came to."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from shardwright.schemas.example import Feature, entries_in, read_entry, read_feature

#: Number of entries that are cached. In larger datasets most entries occur only once.
_MAX_KNOWN = 10_000
#: Longer entries are not cached.
_MAX_BYTES = 128

#: Parts of a record that other records may share: whole entries, and the names of the other entries.
Signature = tuple[bytes | str, ...]


class ParsedEntries(NamedTuple):
    """Features of a parsed record.

    Attributes:
      features: Mapping of name to feature. Images are memoryviews into the record.
      signature: Equal for records whose repeated parts are all equal. None if a name occurs twice.
    """

    features: dict[str, Feature]
    signature: Signature | None


class RepeatedEntries:
    """Parser for records. Use one for all records of a shard or a dataset.

    Args:
      repeating: Names of features whose values occur in many records.
      picture: Name of the feature whose bytes are not copied. Empty if there is none.
    """

    def __init__(self, repeating: Collection[str], picture: str) -> None:
        self._repeating = frozenset(repeating)
        self._picture = picture
        self._known: dict[bytes, tuple[str, Feature]] = {}

    def read(self, data: bytes) -> ParsedEntries:
        """Returns the features of a serialized `tf.train.Example`, as `parse_example` does.

        Raises:
          ValueError: If the bytes are not such a message.
        """
        known, features = self._known, dict[str, Feature]()
        signature: list[bytes | str] = []
        for begin, end in entries_in(data):
            entry = data[begin:end] if end - begin < _MAX_BYTES else b""
            same = known.get(entry)
            if same is not None:
                features[same[0]] = same[1]
                signature.append(entry)
                continue
            name, content = read_entry(data, begin, end)
            feature = read_feature(memoryview(data) if name == self._picture else data, content)
            features[name] = feature
            if name not in self._repeating:
                signature.append(name)
                continue
            signature.append(data[begin:end])
            if entry:
                if len(known) >= _MAX_KNOWN:
                    known.clear()
                known[entry] = name, feature
        return ParsedEntries(features, tuple(signature) if len(features) == len(signature) else None)
