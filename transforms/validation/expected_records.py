"""Compares records with what their entries in the ledger say, without parsing them.

An entry states the class, the key and the checksum of a record, and its frame states its size. If an earlier
sound record of the class had a key of the same length, these imply all bytes of the record but its image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

from shardwright.schemas.wire_format import write_varint
from shardwright.transforms.records.framing import RecordBlock
from shardwright.transforms.validation.record_templates import (
    RecordParts,
    content_bytes,
    field_head,
    image_marker,
)
from shardwright.transforms.validation.values import are_hex

#: Largest number of kinds of records that are kept, and of sizes.
_MAX_KNOWN, _MAX_SIZES = 10_000, 1 << 15
#: Number of wrong expectations that are always allowed, and of right ones for each further one.
_TRIAL, _PAYING = 100, 4
_SHA256_DIGITS = 64

#: Class, length of the key, and length of its last part; 0 for a text that the records do not store.
_Kind = tuple[str | None, int, int]
#: The key, its last part, and the checksum of a record.
_Texts = tuple[bytes, bytes, bytes]


class LedgerTexts(NamedTuple):
    """Texts of consecutive entries in a ledger, as columns.

    Attributes:
      keys: Keys.
      sources: sha256 of the sources.
      labels: Class names.
    """

    keys: Sequence[str] = ()
    sources: Sequence[str] = ()
    labels: Sequence[str] = ()


class _Entries(NamedTuple):
    """Entries on one side of the image.

    Attributes:
      size: Number of bytes.
      form: The bytes, with a place for each text.
      texts: Function that returns these texts. None if there are none, so that `form` is the bytes.
    """

    size: int
    form: bytes
    texts: Callable[[_Texts], Any] | None


class ExpectedRecords:
    """Sound records as functions of their entries in the ledger. Several threads can use it.

    Args:
      image: Name of the feature with the image.
      texts: Names of the features with the key, its last part, and the checksum of the source. None for a
        text that the records do not store.
    """

    def __init__(self, image: str, texts: tuple[str | None, str | None, str | None]) -> None:
        self._names = texts
        self._known: dict[_Kind, tuple[_Entries, _Entries]] = {}
        self._unlabelled = False
        self._record_heads, self._image_heads = _RecordHeads(), _ImageHeads(image)
        self._right = self._wrong = 0

    @property
    def useless(self) -> bool:
        """Whether too few records were as expected."""
        return self._wrong > _TRIAL and self._right < _PAYING * self._wrong

    def add(self, parts: RecordParts, label: str | None) -> None:
        """Keeps a sound record.

        Args:
          parts: The record without its image.
          label: Class names joined as in a ledger. None if the record does not say.
        """
        key, basename, sha256 = (len(parts.texts.get(name or "", b"")) for name in self._names)
        if sha256 not in (0, _SHA256_DIGITS) or not parts.texts.keys() <= set(self._names):
            return
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._unlabelled |= label is None
        self._known[label, key, basename] = self._entries(parts.before), self._entries(parts.after)

    def _entries(self, parts: Sequence[bytes | tuple[str, int]]) -> _Entries:
        names = [part[0] for part in parts if isinstance(part, tuple)]
        size = sum(part[1] if isinstance(part, tuple) else len(part) for part in parts)
        if not names:
            return _Entries(size, b"".join(part for part in parts if isinstance(part, bytes)), None)
        form = (b"%b" if isinstance(part, tuple) else part.replace(b"%", b"%%") for part in parts)
        return _Entries(size, b"".join(form), itemgetter(*map(self._names.index, names)))

    def count(self, block: RecordBlock, first: int, ledger: LedgerTexts) -> int:
        """Returns how many records of a block, beginning with a given one, are sound and match their entries.

        Args:
          block: The records.
          first: Place of the first of them in the block.
          ledger: Texts of their entries.
        """
        known, record_heads, image_heads = self._known, self._record_heads, self._image_heads
        begins_with, ends_with = block.buffer.startswith, block.buffer.endswith
        labels: Iterable[str | None] = repeat(None) if self._unlabelled else ledger.labels
        count = 0
        records = zip(
            self._texts(ledger.keys, ledger.sources), labels, block.begins[first:], block.ends[first:]
        )
        for texts, label, begin, end in records:
            entries = known.get((label, len(texts[0]), len(texts[1])))
            if entries is None:
                break
            (before_size, before, before_texts), (after_size, after, after_texts) = entries
            record_head = record_heads[end - begin]
            image_head = image_heads[end - begin - len(record_head) - before_size - after_size]
            if before_texts is not None:
                before %= before_texts(texts)
            if after_texts is not None:
                after %= after_texts(texts)
            if (
                not (record_head and image_head)
                or not begins_with(record_head + before + image_head, begin, end)
                or not ends_with(after, begin, end)
            ):
                break
            count += 1
        self._right += count
        self._wrong += count < len(ledger.keys)
        return count

    def _texts(self, keys: Sequence[str], sources: Sequence[str]) -> Iterator[_Texts]:
        """Returns the texts that the records must have; none if one of them has bytes that are not sound."""
        key, basename, sha256 = self._names
        try:
            names, digests = list(map(str.encode, keys)), list(map(str.encode, sources))
        except UnicodeEncodeError:
            return iter(())
        if sha256 and (set(map(len, digests)) != {_SHA256_DIGITS} or not are_hex(digests)):
            return iter(())
        basenames = [name.rpartition(b"/")[2] for name in names] if basename else repeat(b"")
        return zip(names if key else repeat(b""), basenames, digests)


class _RecordHeads(dict[int, bytes]):
    """Size of a record -> its first bytes, before its entries. Empty if no record has this size."""

    def __missing__(self, size: int) -> bytes:
        if len(self) >= _MAX_SIZES:
            self.clear()
        content = content_bytes(size)
        self[size] = head = field_head(content) if content >= 0 else b""
        return head


class _ImageHeads(dict[int, bytes]):
    """Size of the entry with the image -> its bytes before the image. Empty if no entry has this size.

    Args:
      image: Name of the feature with the image.
    """

    def __init__(self, image: str) -> None:
        super().__init__()
        self._marker = image_marker(image)

    def __missing__(self, size: int) -> bytes:
        if len(self) >= _MAX_SIZES:
            self.clear()
        entry = content_bytes(size)
        feature = content_bytes(entry - len(self._marker) + 1)  # the marker ends with the tag of this field
        in_list = content_bytes(feature)
        length = content_bytes(in_list)
        sizes = entry, feature, in_list, length
        head = b""
        if min(sizes) >= 0:
            parts = field_head(entry), self._marker, write_varint(feature), field_head(in_list)
            head = b"".join((*parts, field_head(length)))
        self[size] = head
        return head
