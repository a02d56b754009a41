"""Recognizes records that equal an earlier sound record in everything but their image and their texts.

The records of a classification dataset differ in the image, the name of its file and its checksum. All other
features repeat. So a record is compared with the bytes of earlier ones, and not parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from struct import Struct
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

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
#: Number of bytes of the varints that are read together, and bits of a varint of 1, 2, 3 and 4 bytes.
_VARINT_BYTES = 4
_VARINT_BITS = np.array([0x7F, 0x3FFF, 0x1FFFFF, 0xFFFFFFF])
#: Bits of varints of 1, 2, 3 and 4 bytes that say that another byte follows, and bits of a tag and a varint.
_CONTINUED = np.array([0, 0x80, 0x8080, 0x808080])
_HEAD_BITS = np.array([0xFFFF, 0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFF])
_WORD = np.arange(8)
#: Sizes from which on a field's length takes 2, 3 and 4 bytes.
_FIELD_SIZES = np.array([1 + bytes_ + limit for bytes_, limit in enumerate(_LIMITS[:3], 2)])

#: Tag of the first field of a message, if it has a length.
_FIRST_TAG = 10

Value = TypeVar("Value")
Integers = npt.NDArray[np.int64]


class Similar(NamedTuple, Generic[Value]):
    """A record that was recognized.

    Attributes:
      value: Facts that were kept about the earlier record.
      begin: Position of the first byte of the image.
      end: Position behind its last byte.
      texts: Values of the texts, in the order of their names in the record.
    """

    value: Value
    begin: int
    end: int
    texts: tuple[bytes, ...]


class SimilarRecords(NamedTuple, Generic[Value]):
    """Consecutive records that were recognized, and that have the same texts.

    Attributes:
      values: Facts that were kept about the earlier record of each.
      texts: Name of a text -> its value in each record.
    """

    values: list[Value]
    texts: dict[str, tuple[bytes, ...]]


class ImagePlaces(NamedTuple):
    """Where the images of some records begin and end in a buffer.

    Attributes:
      usual: Whether the messages of each record have the usual encoding. The other values count only then.
      befores: Where the entries before the image begin.
      before_sizes: Number of their bytes.
      afters: Where the entries after the image begin, which is the end of the image.
      after_sizes: Number of their bytes.
      images: Where the image begins.
    """

    usual: list[bool]
    befores: list[int]
    before_sizes: list[int]
    afters: list[int]
    after_sizes: list[int]
    images: list[int]


class RecordParts(NamedTuple):
    """A record without its image.

    Attributes:
      before: Entries before the image: bytes, and names and sizes of the texts between them.
      after: Entries after the image, in the same form.
      texts: Name of a text -> its value.
    """

    before: tuple[bytes | tuple[str, int], ...]
    after: tuple[bytes | tuple[str, int], ...]
    texts: dict[str, bytes]


class _Form(NamedTuple):
    """The sizes and places of the features of a record, without its image.

    Attributes:
      before: Format of the entries before the image: the texts, and the bytes between them.
      after: Format of the entries after the image.
      runs: Function that returns all that is not a text from the parts of both.
      texts: Function that returns the values of the texts from these parts.
      names: Names of the texts.
      known: Runs -> value.
    """

    before: Struct
    after: Struct
    runs: Any
    texts: Any
    names: tuple[str, ...]
    known: dict[tuple[bytes, ...], Any]

    @property
    def layout(self) -> tuple[Any, ...]:
        """The places of the texts, and their names."""
        return self.before.format, self.after.format, self.names


class RecordTemplates(Generic[Value]):
    """Earlier records, and a value for each. Several threads can use it.

    Args:
      image: Name of the feature with the image.
      texts: Name of a feature with one text -> function that returns whether some texts of it are sound.
    """

    def __init__(self, image: str, texts: Mapping[str, Callable[[Sequence[bytes]], bool]]) -> None:
        self._image, self._texts = image, texts
        self._marker = image_marker(image)
        #: Numbers of bytes before the image and after it -> forms.
        self._forms: dict[tuple[int, int], list[_Form]] = {}
        self._hits = self._learned = self._kept = 0

    @property
    def useless(self) -> bool:
        """Whether few records were recognized."""
        return self._learned > _TRIAL and self._hits < self._learned

    def find(self, data: bytes) -> Similar[Value] | None:
        """Returns the earlier record that a record equals; None if there is none."""
        places = self._around_image(data) if self._forms else None
        if places is None:
            return None
        before, before_size, begin, end = places
        for form in self._forms.get((before_size, len(data) - end), ()):
            parts = form.before.unpack_from(data, before) + form.after.unpack_from(data, end)
            value = form.known.get(form.runs(parts))
            if value is not None:
                texts: tuple[bytes, ...] = form.texts(parts)
                if not all(self._texts[name]((text,)) for name, text in zip(form.names, texts)):
                    return None
                self._hits += 1
                return Similar(value, begin, end, texts)
        return None

    def find_run(
        self, buffer: bytes | bytearray, places: ImagePlaces, first: int
    ) -> SimilarRecords[Value] | None:
        """Returns the records from one place on that equal earlier ones; None if the first does not.

        Args:
          buffer: Buffer with the records.
          places: Their places in it (`image_places`).
          first: Place of the first record among them.
        """
        values, found = list[Value](), list[tuple[bytes, ...]]()
        names: tuple[str, ...] = ()
        forms_of, usual = self._forms.get, places.usual
        for place in range(first, len(usual)):
            if not usual[place]:
                break
            for form in forms_of((places.before_sizes[place], places.after_sizes[place]), ()):
                parts = form.before.unpack_from(buffer, places.befores[place]) + form.after.unpack_from(
                    buffer, places.afters[place]
                )
                value = form.known.get(form.runs(parts))
                if value is not None:
                    break
            else:
                break
            if not values:
                names = form.names
            elif names != form.names:
                break
            values.append(value)
            found.append(form.texts(parts))
        texts = dict(zip(names, zip(*found)))
        sound = min((self._sound(name, texts[name]) for name in names), default=len(values))
        if not sound:
            return None
        self._hits += sound
        if sound < len(values):
            return SimilarRecords(values[:sound], {name: text[:sound] for name, text in texts.items()})
        return SimilarRecords(values, texts)

    def _sound(self, name: str, texts: Sequence[bytes]) -> int:
        """Returns how many of some texts, from the first on, are sound."""
        are_sound = self._texts[name]
        if are_sound(texts):
            return len(texts)
        return next(place for place, text in enumerate(texts) if not are_sound((text,)))

    def names_of(self, data: bytes) -> tuple[str, ...]:
        """Returns the names of the texts of a record, in their order."""
        names = (read_entry(data, *entry)[0] for entry in entries_in(data))
        return tuple(name for name in names if name in self._texts)

    def count(self, found: int) -> None:
        """Counts records that were recognized in another way."""
        self._hits += found

    def add(self, data: bytes, value: Value) -> RecordParts | None:
        """Keeps a sound record, in which each name occurs once.

        Args:
          data: The serialized Example.
          value: What `find` returns for records that equal it.

        Returns:
          The parts of the record; None if it was not kept.
        """
        if self.useless:
            return None
        self._learned += 1
        if self._kept >= _MAX_KNOWN or len(self._forms) >= _MAX_FORMS:
            return None
        places = self._around_image(data)
        if places is None:
            return None
        before, before_size, _, end = places
        form = self._form_of(data, data[before : before + before_size], data[end:])
        if form is None:
            return None
        before_parts, after_parts = form.before.unpack_from(data, before), form.after.unpack_from(data, end)
        parts = before_parts + after_parts
        forms = self._forms.setdefault((before_size, len(data) - end), [])
        same = (other for other in forms if other.layout == form.layout)
        if (known := next(same, None)) is None:
            forms.append(form)
        else:
            form = known
        form.known[form.runs(parts)] = value
        self._kept += 1
        names = iter(form.names)
        sides = [
            tuple((next(names), len(part)) if place % 2 else part for place, part in enumerate(side))
            for side in (before_parts, after_parts)
        ]
        return RecordParts(sides[0], sides[1], dict(zip(form.names, form.texts(parts))))

    def _form_of(self, data: bytes, before: bytes, after: bytes) -> _Form | None:
        """Returns the form of a record; None if a text or the order of the entries is unusual."""
        names = list[str]()
        #: Sizes of the parts before the image and after it: the bytes up to a text, the text, and so on.
        sizes: tuple[list[int], list[int]] = ([0], [0])
        rest, entries = before + after, 0
        for begin, end in entries_in(data):
            name, content = read_entry(data, begin, end)
            if name == self._image:
                if entries != len(before):
                    return None
                continue
            whole = field_head(end - begin) + data[begin:end]
            if rest[entries : entries + len(whole)] != whole:
                return None
            side = sizes[entries >= len(before)]
            entries += len(whole)
            if name not in self._texts:
                side[-1] += len(whole)
                continue
            feature = read_feature(data, content)
            if feature.type is not FeatureType.BYTES or len(feature.values) != 1:
                return None
            value = feature.values[0]
            usual = encode_example({name: Feature(FeatureType.BYTES, [value])})
            if not usual.endswith(whole) or not whole.endswith(value):
                return None
            side[-1] += len(whole) - len(value)
            side += (len(value), 0)
            names.append(name)
        if entries != len(rest):
            return None
        first, second = (Struct("".join(f"{size}s" for size in side)) for side in sizes)
        kinds = [place % 2 for side in sizes for place in range(len(side))]
        runs, texts = (_values_at([place for place, kind in enumerate(kinds) if kind == it]) for it in (0, 1))
        return _Form(first, second, runs, texts, tuple(names), {})

    def image_places(
        self, buffer: bytes | bytearray, begins: Sequence[int], ends: Sequence[int]
    ) -> ImagePlaces:
        """Finds the images of records in a buffer, as `_around_image` finds the image of one.

        Args:
          buffer: Buffer with the records.
          begins: Where each record begins in it.
          ends: Where each record ends.
        """
        data = np.frombuffer(buffer or b"\0", np.uint8)  # nothing can be taken from an empty array
        find, marker = buffer.find, self._marker
        marks = [find(marker, begin, begin + _MAX_BYTES) for begin in begins]
        begin, end, mark = (np.array(values, np.int64) for values in (begins, ends, marks))
        feature = mark + len(marker)
        size, size_bytes = _read_varints(data, feature)
        lists = feature + size_bytes
        image_end = lists + size
        in_list, in_list_bytes = _contents(size)
        length, length_bytes = _contents(in_list)
        whole, whole_bytes = _contents(end - begin)
        entry = image_end - mark
        entry_bytes = np.searchsorted(_LIMITS[: _VARINT_BYTES - 1], entry, "right") + 1
        entry_begin = mark - entry_bytes - 1
        heads = _are_heads(
            data,
            np.concatenate((begin, entry_begin, lists, lists + 1 + in_list_bytes)),
            np.concatenate((whole, entry, in_list, length)),
            np.concatenate((whole_bytes, entry_bytes, in_list_bytes, length_bytes)),
        )
        befores = begin + 1 + whole_bytes
        usual = (
            heads.reshape(4, -1).all(0)
            & (end - begin < _LIMITS[_VARINT_BYTES - 1])
            & (mark >= 0)
            & (feature + MAX_VARINT_BYTES <= end)
            & (size_bytes <= _VARINT_BYTES)
            & (entry_begin >= befores)
            & (image_end <= end)
            & (end - image_end <= _MAX_BYTES)
            & (length >= 0)
        )
        return ImagePlaces(
            usual.tolist(),
            befores.tolist(),
            (entry_begin - befores).tolist(),
            image_end.tolist(),
            (end - image_end).tolist(),
            (image_end - length).tolist(),
        )

    def _around_image(self, data: bytes) -> tuple[int, int, int, int] | None:
        """Finds the image in a record whose messages have the usual encoding.

        Returns:
          Where the entries before that of the image begin, the number of their bytes, and where the image
          begins and ends. None if the record is encoded in another way, or if the entries are large.
        """
        whole = content_bytes(len(data))
        key = data.find(self._marker, 0, _MAX_BYTES)
        feature = key + len(self._marker)
        if whole < 0 or key < 0 or feature + MAX_VARINT_BYTES > len(data):
            return None
        try:
            size, list_begin = read_varint(data, feature)
        except ValueError:
            return None
        first = field_head(whole)
        end = list_begin + size
        in_list = content_bytes(size)
        length = content_bytes(in_list)
        begin = end - length
        entry = field_head(end - key)
        entry_begin = key - len(entry)
        if (
            length < 0
            or end > len(data)
            or len(data) - end > _MAX_BYTES
            or entry_begin < len(first)
            or not data.startswith(first)
            or data[entry_begin:key] != entry
            or data[list_begin:begin] != field_head(in_list) + field_head(length)
        ):
            return None
        return len(first), entry_begin - len(first), begin, end


def image_marker(image: str) -> bytes:
    """Returns what comes before the content of the image's Feature, without the head of the entry.

    Args:
      image: Name of the feature with the image.
    """
    name = image.encode()
    return b"".join((b"\n", write_varint(len(name)), name, b"\x12"))


def _words_at(data: npt.NDArray[np.uint8], places: Integers) -> Integers:
    """Returns the 8 bytes at each place as one little-endian number; wrong near the end of the buffer."""
    words: Integers = data.take(places[:, None] + _WORD, mode="clip").view("<i8")[:, 0]
    return words


def _read_varints(data: npt.NDArray[np.uint8], places: Integers) -> tuple[Integers, Integers]:
    """Reads varints of at most four bytes.

    Args:
      data: Bytes of a buffer, uint8.
      places: Where each varint begins, int64.

    Returns:
      The numbers, and the bytes that each takes. Longer varints have any number, and five bytes.
    """
    words = _words_at(data, places)
    two = words >> 7 & 1
    three = two & words >> 15
    four = three & words >> 23
    count = 1 + two + three + four + (four & words >> 31)
    number = words & 0x7F | words >> 1 & 0x3F80 | words >> 2 & 0x1FC000 | words >> 3 & 0xFE00000
    return number & _VARINT_BITS.take(count - 1, mode="clip"), count


def _are_heads(
    data: npt.NDArray[np.uint8], places: Integers, lengths: Integers, length_bytes: Integers
) -> npt.NDArray[np.bool_]:
    """Returns whether first fields of messages begin at some places.

    Args:
      data: Bytes of a buffer, uint8.
      places: Where each field may begin, int64.
      lengths: Length of the content of each, below 2^28.
      length_bytes: Number of bytes of the varint of this length.
    """
    varints = (
        lengths & 0x7F | (lengths & 0x3F80) << 1 | (lengths & 0x1FC000) << 2 | (lengths & 0xFE00000) << 3
    )
    heads = (varints | _CONTINUED.take(length_bytes - 1)) << 8 | _FIRST_TAG
    compared: npt.NDArray[np.bool_] = (_words_at(data, places) ^ heads) & _HEAD_BITS.take(
        length_bytes - 1
    ) == 0
    return compared


def _contents(sizes: Integers) -> tuple[Integers, Integers]:
    """Returns the lengths of the contents of fields, and the number of bytes that each length takes.

    Args:
      sizes: Number of bytes of each field: a tag of one byte, the length as a varint, and the content.
    """
    length_bytes = np.searchsorted(_FIELD_SIZES, sizes, "right") + 1
    return sizes - 1 - length_bytes, length_bytes


def _values_at(places: list[int]) -> Any:
    """Returns a function that returns the items of a sequence at some places, as a tuple."""
    if not places:
        return lambda groups: ()
    if len(places) == 1:
        place = places[0]
        return lambda groups: (groups[place],)
    return itemgetter(*places)


def field_head(size: int) -> bytes:
    """Returns the tag of a message's first field and the number of its bytes, as a varint."""
    if size < _LIMITS[0]:
        return bytes((10, size))
    if size < _LIMITS[1]:
        return bytes((10, size & 127 | 128, size >> 7))
    if size < _LIMITS[2]:
        return bytes((10, size & 127 | 128, size >> 7 & 127 | 128, size >> 14))
    return b"\n" + write_varint(size)


def content_bytes(size: int) -> int:
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
