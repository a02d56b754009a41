"""Parses the records of a shard. Many values repeat, so the results of parsing are kept."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from shardwright.schemas.example import Feature, entries_in, read_entry, read_feature

#: Number of entries that are cached. In larger datasets most entries occur only once.
_MAX_KNOWN = 10_000
#: Longer entries are not cached.
_MAX_BYTES = 128

#: Whole entries that other records may share, and the names of the other entries.
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
      signing: Those of them whose values are part of a record's signature.
      picture: Name of the feature whose bytes are not copied. Empty if there is none.
    """

    def __init__(self, repeating: Collection[str], signing: Collection[str], picture: str) -> None:
        self._repeating, self._signing = frozenset(repeating), frozenset(signing)
        self._picture = picture
        # Entry -> name of its feature, the feature, and its part of the signature.
        self._known: dict[bytes, tuple[str, Feature, bytes | str]] = {}

    def read(self, data: bytes) -> ParsedEntries:
        """Returns the features of a serialized `tf.train.Example`, as `parse_example` does.

        Raises:
          ValueError: If the bytes are not such a message.
        """
        known, features = self._known, dict[str, Feature]()
        signature: list[bytes | str] = []
        part: bytes | str
        for begin, end in entries_in(data):
            entry = data[begin:end] if end - begin < _MAX_BYTES else b""
            same = known.get(entry)
            if same is not None:
                name, feature, part = same
                features[name] = feature
                signature.append(part)
                continue
            name, content = read_entry(data, begin, end)
            feature = read_feature(memoryview(data) if name == self._picture else data, content)
            features[name] = feature
            part = data[begin:end] if name in self._signing else name
            signature.append(part)
            if entry and name in self._repeating:
                if len(known) >= _MAX_KNOWN:
                    known.clear()
                known[entry] = name, feature, part
        return ParsedEntries(features, tuple(signature) if len(features) == len(signature) else None)
