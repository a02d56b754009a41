"""Stripping metadata finds the segments of any JPEG, also of a damaged one."""

from __future__ import annotations

from helpers.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.transforms.images.metadata import strip_metadata

#: Bytes that have a meaning between the segments of a JPEG, and two that have none.
_MARKER_BYTES = [0xFF] * 6 + [0, 1, 0xD0, 0xD7, 0xD8, 0xD9, 0xDA, 0xE0, 0xE1, 0xFE, 2, 3]


def _stripped_byte_by_byte(data: bytes) -> bytes:
    """Strips a JPEG as T.81 describes it: two bytes at a time."""
    out, at, fill = bytearray(data[:2]), 2, b""
    while at < len(data):
        marker = data[at + 1] if at + 1 < len(data) else 0
        if data[at] == marker == 0xFF:
            fill += b"\xff"
            at += 1
            continue
        end = at + 2
        is_metadata = False
        if data[at] != 0xFF:
            end = at + 1
        elif marker == 0xD9:
            return bytes(out + b"\xff\xd9")
        elif marker > 1 and not 0xD0 <= marker <= 0xD8:
            end += max(2, int.from_bytes(data[at + 2 : at + 4], "big"))
            is_jfif = marker == 0xE0 and data[at + 4 : at + 9] == b"JFIF\0"
            is_metadata = marker == 0xFE or (0xE0 <= marker <= 0xEF and not is_jfif)
        if not is_metadata:
            out += fill + data[at:end]
        at, fill = end, b""
    return bytes(out + fill)


@given(st.lists(st.sampled_from(_MARKER_BYTES), max_size=40))
@settings(max_examples=examples(300), deadline=None)
def test_stripping_finds_the_segments_of_any_bytes(tail: list[int]) -> None:
    data = b"\xff\xd8" + bytes(tail)
    assert strip_metadata(data, "jpeg") == _stripped_byte_by_byte(data)
