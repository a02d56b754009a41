"""Recognizes records that equal an earlier sound record in everything but their image and their texts.

The records of a classification dataset differ in the image, the name of its file and its checksum. All other
features repeat. So a record is compared with the bytes of earlier ones, and not parsed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from shardwright.schemas.example import (
    Feature,
    FeatureType,
    encode_example,
    entries_in,
    read_entry,
    read_feature,
)
from shardwright.schemas.wire_format import MAX_VARINT_BYTES, read_varint, write_varint

#: Limits for what is kept: forms of records, and combinations of repeating values.
_MAX_FORMS, _MAX_KNOWN = 1000, 10_000
#: Largest number of bytes before the image and after it.
_MAX_BYTES = 4096
#: Number of records after which a dataset is given up in which few records are recognized.
_TRIAL = 200
#: Numbers from which on a varint has more than 1, 2, 3, ... bytes.
_LIMITS = tuple(1 << 7 * count for count in range(1, 6))

Value = TypeVar("Value")


class Similar(NamedTuple, Generic[Value]):
    """A record that was recognized.

    Attributes:
      value: What was kept for the earlier record.
      begin: Position of the first byte of the image.
      end: Position behind its last byte.
      texts: Values of the texts, in the order of their names in the record.
    """

    value: Value
    begin: int
    end: int
    texts: tuple[bytes, ...]


class _Form(NamedTuple):
    """The sizes and places of the features of a record, without its image.

    Attributes:
      pattern: Regular expression of the bytes around the image.
      match: Function that matches it.
      runs: Function that returns the bytes of all other features from the groups of a match.
      texts: Function that returns the values of the texts from these groups.
      names: Names of the texts.
    """

    pattern: bytes
    match: Any
    runs: Any
    texts: Any
    names: tuple[str, ...]


class RecordTemplates(Generic[Value]):
    """Earlier records, and a value for each. Several threads can use it.

    Args:
      image: Name of the feature with the image.
      texts: Name of a feature with one text -> regular expression of one byte of it. Texts that match it are
        sound, whatever they are.
    """

    def __init__(self, image: str, texts: Mapping[str, bytes]) -> None:
        name = image.encode()
        self._image, self._texts = image, texts
        #: What comes before the content of the image's Feature, without the length of the entry.
        self._marker = b"".join((b"\n", write_varint(len(name)), name, b"\x12"))
        #: Numbers of bytes before the image and after it -> forms.
        self._forms: dict[tuple[int, int], list[_Form]] = {}
        #: Names of the texts, and bytes of all other features -> value.
        self._known: dict[tuple[Any, ...], Value] = {}
        self._hits = self._learned = 0

    def find(self, data: bytes) -> Similar[Value] | None:
        """Returns the earlier record that a record equals; None if there is none."""
        parts = self._around_image(data) if self._known else None
        if parts is None:
            return None
        before, after, begin, end = parts
        for form in self._forms.get((len(before), len(after)), ()):
            found = form.match(before + after)
            if found is not None:
                groups = found.groups()
                value = self._known.get((form.names, form.runs(groups)))
                if value is not None:
                    self._hits += 1
                    return Similar(value, begin, end, form.texts(groups))
        return None

    def names_of(self, data: bytes) -> tuple[str, ...]:
        """Returns the names of the texts of a record, in their order."""
        names = (read_entry(data, *entry)[0] for entry in entries_in(data))
        return tuple(name for name in names if name in self._texts)

    def add(self, data: bytes, value: Value) -> None:
        """Keeps a sound record, in which each name occurs once.

        Args:
          data: The serialized Example.
          value: What `find` returns for records that equal it.
        """
        if self._learned > _TRIAL and self._hits < self._learned:
            return
        self._learned += 1
        if len(self._known) >= _MAX_KNOWN or len(self._forms) >= _MAX_FORMS:
            return
        parts = self._around_image(data)
        if parts is None:
            return
        before, after, *_ = parts
        form = self._form_of(data, before, after)
        if form is not None:
            found = form.match(before + after)
            if found is not None:
                self._known[form.names, form.runs(found.groups())] = value
                forms = self._forms.setdefault((len(before), len(after)), [])
                if all(form.pattern != other.pattern for other in forms):
                    forms.append(form)

    def _form_of(self, data: bytes, before: bytes, after: bytes) -> _Form | None:
        """Returns the form of a record; None if a text or the order of the entries is unusual."""
        pattern: list[bytes] = []
        runs, texts, names = list[int](), list[int](), list[str]()
        rest, run, entries = before + after, 0, 0
        for begin, end in entries_in(data):
            name, content = read_entry(data, begin, end)
            if name == self._image:
                continue
            whole = _head(end - begin) + data[begin:end]
            if rest[entries : entries + len(whole)] != whole:
                return None
            entries += len(whole)
            if name not in self._texts:
                run += len(whole)
                continue
            feature = read_feature(data, content)
            if feature.type is not FeatureType.BYTES or len(feature.values) != 1:
                return None
            value = feature.values[0]
            usual = encode_example({name: Feature(FeatureType.BYTES, [value])})
            if not usual.endswith(whole) or not whole.endswith(value):
                return None
            if run:
                runs.append(len(runs) + len(texts))
                pattern.append(b"(.{%d})" % run)
                run = 0
            texts.append(len(runs) + len(texts))
            names.append(name)
            pattern.append(re.escape(whole[: len(whole) - len(value)]))
            pattern.append(b"(%s{%d})" % (self._texts[name], len(value)))
        if run:
            runs.append(len(runs) + len(texts))
            pattern.append(b"(.{%d})" % run)
        if entries != len(rest):
            return None
        expression = b"".join(pattern)
        match = re.compile(expression, re.DOTALL).fullmatch
        return _Form(expression, match, _values_at(runs), _values_at(texts), tuple(names))

    def _around_image(self, data: bytes) -> tuple[bytes, bytes, int, int] | None:
        """Finds the image in a record whose messages have the usual encoding.

        Returns:
          The entries before that of the image, those after it, and where the image begins and ends. None if
          the record is encoded in another way, or if the entries are large.
        """
        whole = _content_bytes(len(data))
        key = data.find(self._marker, 0, _MAX_BYTES)
        feature = key + len(self._marker)
        if whole < 0 or key < 0 or feature + MAX_VARINT_BYTES > len(data):
            return None
        try:
            size, list_begin = read_varint(data, feature)
        except ValueError:
            return None
        first = _head(whole)
        end = list_begin + size
        in_list = _content_bytes(size)
        length = _content_bytes(in_list)
        begin = end - length
        entry = _head(end - key)
        entry_begin = key - len(entry)
        if (
            length < 0
            or end > len(data)
            or len(data) - end > _MAX_BYTES
            or entry_begin < len(first)
            or not data.startswith(first)
            or data[entry_begin:key] != entry
            or data[list_begin:begin] != _head(in_list) + _head(length)
        ):
            return None
        return data[len(first) : entry_begin], data[end:], begin, end


def _values_at(places: list[int]) -> Any:
    """Returns a function that returns the items of a sequence at some places, as a tuple."""
    if not places:
        return lambda groups: ()
    if len(places) == 1:
        place = places[0]
        return lambda groups: (groups[place],)
    return itemgetter(*places)


def _head(size: int) -> bytes:
    """Returns the tag of a message's first field and the number of its bytes, as a varint."""
    if size < _LIMITS[0]:
        return bytes((10, size))
    if size < _LIMITS[1]:
        return bytes((10, size & 127 | 128, size >> 7))
    if size < _LIMITS[2]:
        return bytes((10, size & 127 | 128, size >> 7 & 127 | 128, size >> 14))
    return b"\n" + write_varint(size)


def _content_bytes(size: int) -> int:
    """Returns the length of the content of a field; negative if no field has this size.

    Args:
      size: Number of bytes of the whole field: a tag of one byte, the length as a varint, and the content.
    """
    if 131 <= size < 16_387:  # the content of nearly all fields with a thumbnail has a length of two bytes
        return size - 3
    for varint_bytes, limit in enumerate(_LIMITS, 1):
        content = size - 1 - varint_bytes
        if content < limit:
            return content if content >= limit >> 7 or (varint_bytes == 1 and content >= 0) else -1
    return -1
