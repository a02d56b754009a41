"""GIF: the first frame of a file is complete, or the fault says what is wrong with it."""

from __future__ import annotations

import pytest
from helpers import pictures
from PIL import Image

from shardwright.schemas.errors import ImageFault
from shardwright.transforms.images.formats.gif import check_first_frame

GIF = pictures.file_of(Image.fromarray(pictures.rgb_pixels(60, 40)).convert("P"), "GIF")
FRAME = GIF.index(b"\x2c", 13 + (3 << (GIF[10] & 7) + 1))
#: Position of the pixels, after the descriptor of the frame and the size of its codes.
PIXELS = FRAME + 11


def _fault(data: bytes) -> tuple[str, str]:
    with pytest.raises(ImageFault) as fault:
        check_first_frame(data)
    return fault.value.reason, fault.value.message


def test_bytes_between_blocks_are_skipped() -> None:
    check_first_frame(GIF)
    check_first_frame(GIF[:FRAME] + b"\0\0" + GIF[FRAME:])


def test_a_file_without_a_frame_is_truncated() -> None:
    for data in (GIF[:FRAME], GIF[:FRAME] + b";", GIF[:FRAME] + b";" + GIF[FRAME:]):
        assert _fault(data) == ("TRUNCATED", "gif: it ends before its first frame")


def test_codes_that_end_before_the_last_pixel_are_truncated() -> None:
    codes_that_end_at_once = b"\x08" + b"\1" * 8 + b"\0;"
    reason, message = _fault(GIF[:PIXELS] + codes_that_end_at_once)
    assert (reason, message) == ("TRUNCATED", "gif: Image EOF detected before image complete")


@pytest.mark.parametrize("codes", [b"\0;", b"\x08" + b"\xff" * 8 + GIF[PIXELS:], GIF[PIXELS:][:256] + b"\0;"])
def test_codes_without_a_meaning_are_damage(codes: bytes) -> None:
    assert _fault(GIF[:PIXELS] + codes)[0] == "CORRUPT"
