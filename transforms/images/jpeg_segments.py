"""Walks through the segments of a JPEG (ITU-T T.81, annex B), also of a damaged one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

START_OF_SCAN, END_OF_IMAGE = 0xDA, 0xD9
_SOI_BYTES = 2
#: Markers without a segment: TEM, RST0 to RST7, SOI and the end of the image.
_ALONE = frozenset((0x01, *range(0xD0, 0xDA)))
_MARKER = re.compile(rb"\xff[\x01-\xfe]")
#: The end of a scan: a marker that is neither a stuffed byte, a fill byte nor a restart (B.1.1.2).
_AFTER_SCAN = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")


class Segment(NamedTuple):
    """A segment of a JPEG.

    Attributes:
      marker: Second byte of its marker.
      start: Position of its marker.
      end: Position after it. The data of a scan is not part of its segment.
      data_end: Position after the data of a scan; `end` for other segments.
    """

    marker: int
    start: int
    end: int
    data_end: int


def jpeg_segments(data: bytes) -> Iterator[Segment]:
    """Yields the segments after the first marker, up to the end of the image.

    Bytes between the `data_end` of a segment and the start of the next one are stray.

    Args:
      data: The whole file. A segment may state an end behind the end of the file.
    """
    position = _SOI_BYTES
    while found := _MARKER.search(data, position):
        start = found.start()
        marker = data[start + 1]
        end = start + 2
        if marker not in _ALONE:
            end += max(2, int.from_bytes(data[end : end + 2], "big"))
        position = end
        if marker == START_OF_SCAN:
            after = _AFTER_SCAN.search(data, end)
            position = len(data) if after is None else after.start()
        yield Segment(marker, start, end, position)
        if marker == END_OF_IMAGE:
            return
