"""Remembers the headers of JPEGs that were opened, so that files with a known header need no opening.

A program that writes many JPEGs of one size gives all of them the same header: everything up to the data of
the scan. Whatever opening a file finds depends on the header alone, if one scan has all components. Reading a
header takes Python as long as libjpeg takes for the data of a thumbnail, and threads cannot share that work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

#: Limit for the bytes of a header. Plain headers have about 600.
_MAX_BYTES = 4096
#: Number of headers that are kept.
_MAX_HEADERS = 256
_START_OF_SCAN, _END_OF_IMAGE = 0xDA, b"\xff\xd9"
_SCAN_MARKER = bytes((0xFF, _START_OF_SCAN))
#: How the frame of a plain header begins: the marker, and a length of less than 256. Width and height follow.
_FRAME_START, _SIDES_AT, _AFTER_SIDES = b"\xff\xc0\x00", 5, 9
#: Baseline and extended frames with Huffman coding (ITU-T T.81, table B.1).
_SEQUENTIAL = frozenset((0xC0, 0xC1))
#: The segments that a header may consist of: frames, tables (DHT, DQT), DRI, JFIF and Adobe, and the scan.
_EXPECTED = _SEQUENTIAL | {0xC4, 0xDB, 0xDD, 0xE0, 0xEE, _START_OF_SCAN}
#: A marker in the data of a scan that is neither a stuffed byte nor a restart.
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7]", re.DOTALL)


class JpegHeader(NamedTuple):
    """The result of opening a JPEG without problems.

    Attributes:
      length: number of bytes of the header: all up to the data of the only scan.
      mode: Pillow's mode of the picture.
      size: width and height in pixels.
      reduced_size: width and height to which it is decoded.
      factor: factor by which each side is reduced.
      channels: number of channels that a reader gets.
      decoder_bytes: largest number of bytes that decoding takes.
      bare: whether the header has no metadata.
    """

    length: int
    mode: str
    size: tuple[int, int]
    reduced_size: tuple[int, int]
    factor: int
    channels: int
    decoder_bytes: int
    bare: bool

    def ends_after_scan(self, data: bytes) -> bool:
        """Returns whether nothing but the end of the image follows the scan of a file with this header."""
        found = _MARKER.search(data, self.length)
        return found is not None and found.start() == len(data) - 2 and data.endswith(_END_OF_IMAGE)


class JpegHeaders:
    """Headers of JPEGs that were opened under the same bounds. Several threads can use it."""

    def __init__(self) -> None:
        self._by_bytes: dict[bytes, JpegHeader] = {}

    def find(self, data: bytes) -> JpegHeader | None:
        """Returns the header of a file; None if it is not known."""
        scan = data.find(_SCAN_MARKER, 0, _MAX_BYTES)
        if scan < 0:
            return None
        return self._by_bytes.get(data[: scan + 2 + int.from_bytes(data[scan + 2 : scan + 4], "big")])

    def add(self, data: bytes, header: JpegHeader) -> None:
        """Adds a header, if there is room for it.

        Args:
          data: A file with it.
          header: The header. Its length is the result of `header_bytes`.
        """
        if len(self._by_bytes) < _MAX_HEADERS:
            self._by_bytes[data[: header.length]] = header


class OpenedJpeg(NamedTuple):
    """What Pillow found in a plain header, besides width and height.

    Attributes:
      mode: Pillow's mode of the picture.
      info: Pillow's `Image.info`.
    """

    mode: str
    info: Mapping[Any, Any]


class OpenedJpegs:
    """Plain headers that Pillow opened under the same bounds. Several threads can use it.

    Two files have the same header here if only their widths and heights differ.
    """

    def __init__(self) -> None:
        self._by_bytes: dict[bytes, OpenedJpeg] = {}

    def find(self, data: bytes) -> tuple[OpenedJpeg, tuple[int, int]] | None:
        """Returns an opened file with an equal header, and the size of this one; None if none is equal."""
        scan = data.find(_SCAN_MARKER, 0, _MAX_BYTES)
        frame = data.find(_FRAME_START, 0, scan)
        if scan < 0 or frame < 0:
            return None
        opened = self._by_bytes.get(_without_sides(data, frame, scan))
        if opened is None:
            return None
        sides = int.from_bytes(data[frame + _SIDES_AT : frame + _AFTER_SIDES], "big")
        return opened, (sides & 0xFFFF, sides >> 16)

    def add(self, data: bytes, opened: OpenedJpeg) -> None:
        """Adds the header of a file, if it is plain and there is room for it."""
        if len(self._by_bytes) >= _MAX_HEADERS:
            return
        scan, length = data.find(_SCAN_MARKER, 0, _MAX_BYTES), header_bytes(data)
        frame = data.find(_FRAME_START, 0, max(scan, 0))
        # What looks like the frame and the scan at first has to be these segments, also in other files.
        if length == _end_of_scan_header(data, scan) and frame >= 0 and frame == _frame_of(data):
            self._by_bytes[_without_sides(data, frame, scan)] = opened


def _without_sides(data: bytes, frame: int, scan: int) -> bytes:
    """Returns a header without the bytes of its width and height.

    Args:
      data: the whole file.
      frame: position of the first bytes that look like the start of the frame.
      scan: position of the first bytes that look like the start of the scan.
    """
    return data[: frame + _SIDES_AT] + data[frame + _AFTER_SIDES : _end_of_scan_header(data, scan)]


def _end_of_scan_header(data: bytes, scan: int) -> int:
    return scan + 2 + int.from_bytes(data[scan + 2 : scan + 4], "big")


def _frame_of(data: bytes) -> int:
    """Returns the position of the frame in a plain header."""
    position = 2
    while data[position + 1] not in _SEQUENTIAL:
        position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return position


def header_bytes(data: bytes) -> int:
    """Returns the number of bytes up to the data of the only scan of a JPEG.

    Only plain headers count, which all decoders read in the same way: their segments follow each other
    without other bytes between them, and none has metadata besides JFIF's and Adobe's.

    Returns:
      The number of bytes. 0 if there may be several scans, or if the header is unusual or long.
    """
    position, components = 2, 0
    head = data[:_MAX_BYTES]
    while position + 9 < len(head) and head[position] == 0xFF:
        marker, length = head[position + 1], int.from_bytes(head[position + 2 : position + 4], "big")
        if marker not in _EXPECTED or length < 2:
            return 0
        if marker in _SEQUENTIAL:
            if components:
                return 0
            components = head[position + 9]
        end = position + 2 + length
        if marker == _START_OF_SCAN:
            return end if components and head[position + 4] == components and end < len(head) else 0
        position = end
    return 0
