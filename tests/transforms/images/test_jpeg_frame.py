"""The frame header of a JPEG is found whatever stands between its segments."""

from __future__ import annotations

import re

from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.transforms.images.formats.jpeg import read_header

_ALONE = frozenset((0x01, *range(0xD0, 0xD9)))
_NO_FRAMES = (0xC4, 0xC8, 0xCC)
#: Bytes that have a meaning between the segments of a JPEG, and a few that have none.
_BYTES = [0xFF] * 6 + [0, 1, 0xC0, 0xC2, 0xC4, 0xD0, 0xD8, 0xD9, 0xDA, 0xE1, 2, 3, 8, 0x11]
_FRAME = b"\xff\xc0\0\x11\x08\0\x05\0\x07\x03\1\x22\0\2\x11\1\3\x11\1"


def _frame_by_expression(data: bytes) -> tuple[int, int] | None:
    """Returns width and height of the last frame header before the first scan; searches every marker."""
    position, size = 2, None
    while found := re.compile(rb"\xff[\x01-\xfe]").search(data, position):
        start, marker = found.start(), data[found.start() + 1]
        if 0xC0 <= marker <= 0xCF and marker not in _NO_FRAMES and len(data) > start + 9:
            size = int.from_bytes(data[start + 7 : start + 9]), int.from_bytes(data[start + 5 : start + 7])
        if marker in (0xDA, 0xD9):
            return size
        position = start + 2
        if marker not in _ALONE:
            position += max(2, int.from_bytes(data[start + 2 : start + 4]))
    return size


@given(
    st.lists(
        st.one_of(st.sampled_from(_BYTES).map(lambda byte: bytes((byte,))), st.just(_FRAME)), max_size=30
    )
)
@settings(max_examples=examples(300), deadline=None)
def test_the_frame_is_found_among_any_bytes(parts: list[bytes]) -> None:
    data = b"\xff\xd8" + b"".join(parts)
    frame = read_header(data)
    assert (frame and (frame.width, frame.height)) == _frame_by_expression(data)


def test_the_frame_after_stray_bytes_is_found() -> None:
    frame = read_header(b"\xff\xd8" + b"stray" + b"\xff\xe1\0\4ab" + b"\0\xff\xff" + _FRAME)
    assert frame is not None and (frame.width, frame.height) == (7, 5)
