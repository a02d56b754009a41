"""Walks the parts of files: chunks of PNG and WebP, boxes of HEIF, JPEG 2000 and JPEG XL.

A box has a length of 4 bytes, a type of 4 bytes, and content. Length 1 means that 8 bytes with the length
follow the type. Length 0 means that the box ends with the file.

Sources: PNG specification (third edition), 5; RFC 9649, 2.3; ISO/IEC 14496-12, 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from shardwright.core.images.faults import corrupt
from shardwright.schemas.bounds import Bounds

_HEADER_BYTES, _LARGE_HEADER_BYTES = 8, 16
_LARGE, _TO_THE_END = 1, 0


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
