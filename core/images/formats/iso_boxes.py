"""Walks the boxes of ISO files: HEIF, JPEG 2000 and JPEG XL.

A box has a length of 4 bytes, a type of 4 bytes, and content. Length 1 means that 8 bytes with the length
follow the type. Length 0 means that the box ends with the file.

Source: ISO/IEC 14496-12, 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from shardwright.core.images.faults import corrupt
from shardwright.schemas.bounds import Bounds

_HEADER_BYTES, _LARGE_HEADER_BYTES = 8, 16
_LARGE, _TO_THE_END = 1, 0


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
