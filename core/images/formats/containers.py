"""Walks the parts of files: chunks of PNG and WebP, boxes of HEIF, JPEG 2000 and JPEG XL, tags of TIFF.

A box has a length of 4 bytes, a type of 4 bytes, and content. Length 1 means that 8 bytes with the length
follow the type. Length 0 means that the box ends with the file.

Sources: PNG specification (third edition), 5; RFC 9649, 2.3; ISO/IEC 14496-12, 4.2; TIFF 6.0, section 2;
BigTIFF design; Exif 3.0, 4.6.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from shardwright.core.images.faults import corrupt
from shardwright.schemas.bounds import NO_BOUNDS, Bounds

_HEADER_BYTES, _LARGE_HEADER_BYTES = 8, 16
_LARGE, _TO_THE_END = 1, 0
#: Tags that name another directory of tags: Exif, GPS, interoperability.
EXIF_DIRECTORY, GPS_DIRECTORY, _INTEROPERABILITY = 34665, 34853, 40965
_DIRECTORY_TAGS = frozenset((EXIF_DIRECTORY, GPS_DIRECTORY, _INTEROPERABILITY))
_MAX_DIRECTORIES = 8
#: Type of a tag -> (bytes of a value, weight of a value in memory). Text and bytes are not converted.
_TYPES = {
    1: (1, 0), 2: (1, 0), 7: (1, 0), 6: (1, 1), 3: (2, 1), 8: (2, 1), 4: (4, 1), 9: (4, 1), 11: (4, 1),
    13: (4, 1), 5: (8, 8), 10: (8, 8), 12: (8, 1), 16: (8, 1), 17: (8, 1), 18: (8, 1),
}  # fmt: skip
_STRIP_TAGS = frozenset((273, 279, 324, 325))
_BIG_TIFF = 43


class Chunk(NamedTuple):
    """A chunk of a PNG or a WebP.

    Attributes:
      type: Its type, such as `b"IDAT"` or `b"VP8X"`.
      begin: Position of its first byte.
      content: Its content in the file. It may end behind the end of the file.
      end: Position after its checksum or padding.
    """

    type: bytes
    begin: int
    content: slice
    end: int


def chunks(data: bytes, kind: str) -> Iterator[Chunk]:
    """Yields the chunks up to the end of the file, also of a damaged one.

    Args:
      data: The whole file.
      kind: `png`: length, type, content and checksum, after a signature. `webp`: type, length, content and
        padding to an even size, after the header of RIFF.
    """
    is_png = kind == "png"
    begin, shortest = (8, 12) if is_png else (12, 8)
    while begin + shortest <= len(data):
        first, second = data[begin : begin + 4], data[begin + 4 : begin + 8]
        size = int.from_bytes(first, "big") if is_png else int.from_bytes(second, "little")
        content = slice(begin + 8, begin + 8 + size)
        chunk = Chunk(second if is_png else first, begin, content, content.stop + (4 if is_png else size % 2))
        yield chunk
        begin = chunk.end


def check_chunks(data: bytes, kind: str, bounds: Bounds) -> None:
    """Checks that a PNG or a WebP has not too many chunks.

    Raises:
      ImageFault: If it has.
    """
    for count, _ in enumerate(chunks(data, kind), 1):
        if count > bounds.chunks:
            raise bounds.fault("chunks", f"{kind}: it has at least {count} chunks")


class Box(NamedTuple):
    """A box of a file.

    Attributes:
      type: Its type, such as `b"meta"`.
      begin: Position of its content.
      end: Position after its content; beyond the end of the file if the file is truncated.
    """

    type: bytes
    begin: int
    end: int


def boxes(data: bytes, begin: int, end: int, kind: str, bounds: Bounds) -> Iterator[Box]:
    """Yields the boxes in a part of a file.

    Args:
      data: The whole file.
      begin: Position of the first box.
      end: Position after the last one.
      kind: Format of the file, for messages.
      bounds: Limits on the parts of the file.

    Raises:
      ImageFault: If there are too many boxes, or one has a length that is not possible.
    """
    position = begin
    count = 0
    while position + _HEADER_BYTES <= end:
        count += 1
        bounds.check("boxes", count, f"{kind}: it has at least {count} boxes")
        length, content = number(data, position, 4), position + _HEADER_BYTES
        if length == _LARGE:
            length, content = number(data, position + 8, 8), position + _LARGE_HEADER_BYTES
        elif length == _TO_THE_END:
            length = end - position
        if position + length < content:
            raise corrupt(f"{kind}: a box has {length} bytes")
        yield Box(data[position + 4 : position + 8], content, position + length)
        position += length


def number(data: bytes, position: int, size: int) -> int:
    """Returns an unsigned number of `size` bytes, big endian."""
    return int.from_bytes(data[position : position + size], "big")


class Numbers:
    """Reads the numbers of a list in a box, one after another.

    Args:
      data: The whole file.
      begin: Position of the first number.
      end: Position after the list.
      name: The format and the list, for messages.
    """

    def __init__(self, data: bytes, begin: int, end: int, name: str) -> None:
        self._data, self._position, self._end, self._name = data, begin, end, name

    def next(self, size: int) -> int:
        """Returns the next number, of `size` bytes.

        Raises:
          ImageFault: If it is not in the list.
        """
        begin = self._position
        self._position += size
        if self._position > self._end:
            raise corrupt(f"{self._name} is damaged")
        return number(self._data, begin, size)


class Tag(NamedTuple):
    """A tag.

    Attributes:
      directory: Number of the tag that names its directory; 0 for the main directories.
      number: Its number.
      value_count: Number of its values.
      weight: Weight of its values in memory.
      begin: Position of its values.
      size: Number of bytes of its values. They may end beyond the file.
    """

    directory: int
    number: int
    value_count: int
    weight: int
    begin: int
    size: int


def tiff_tags(data: bytes, what: str = "", bounds: Bounds = NO_BOUNDS) -> Iterator[Tag]:
    """Yields the tags of the first two directories and of those that they name.

    Args:
      data: A TIFF file, or Exif data without its prefix; also a damaged one.
      what: The format, for messages.
      bounds: Limits on the tags.

    Raises:
      ImageFault: If the directories state too many tags.
    """
    order: Any = {b"II": "little", b"MM": "big"}.get(data[:2])
    if order is None:
        return
    is_big = int.from_bytes(data[2:4], order) == _BIG_TIFF
    wide, count_bytes = (8, 8) if is_big else (4, 2)
    entry = struct.Struct(("<" if order == "little" else ">") + ("HHQQ" if is_big else "HHII"))
    inline = entry.size - wide

    def number(position: int, size: int) -> int:
        return int.from_bytes(data[position : position + size], order)

    waiting = deque([(0, number(wide, wide))])
    tags = 0
    for place in range(_MAX_DIRECTORIES):
        if not waiting:
            return
        directory, begin = waiting.popleft()
        stated = number(begin, count_bytes) if begin + count_bytes <= len(data) else 0
        tags += stated
        bounds.check("tags", tags, f"{what}: it has at least {tags} tags")
        begin += count_bytes
        present = min(stated, max(0, len(data) - begin) // entry.size)
        end = begin + entry.size * present
        for tag, type_, count, value in entry.iter_unpack(memoryview(data)[begin:end]):
            size, weight = _TYPES.get(type_, (0, 0))
            size *= count
            yield Tag(directory, tag, count, weight * count, begin + inline if size <= wide else value, size)
            begin += entry.size
            if tag in _DIRECTORY_TAGS:
                waiting.append((tag, value))
        if place == 0 and (following := number(end, wide)):
            waiting.append((0, following))


def check_tags(data: bytes, what: str, bounds: Bounds) -> None:
    """Checks that a file has no more tags and values than a decoder can process in seconds.

    Args:
      data: A TIFF file, or Exif data without its prefix.
      what: The format, for messages.
      bounds: Limits on tags, values and strips.

    Raises:
      ImageFault: If there are too many tags, values or strips.
    """
    values = stored = 0
    for tag in tiff_tags(data, what, bounds):
        if tag.size > len(data):
            continue  # decoders do not read values beyond the end of the file
        if tag.number in _STRIP_TAGS:
            bounds.check("strips", tag.value_count, f"{what}: it has {tag.value_count} strips or tiles")
        values += tag.weight
        stored += tag.size
        if values > bounds.tag_values:
            raise bounds.fault("tag_values", f"{what}: its tags have at least {values} values")
        if stored - len(data) > bounds.shared_bytes:
            raise bounds.fault(
                "shared_bytes", f"{what}: its tags have {stored - len(data)} bytes more than the file"
            )
