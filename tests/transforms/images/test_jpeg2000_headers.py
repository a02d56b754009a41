"""Headers of JPEG 2000 that are damaged or not read, each with its own sentence."""

from __future__ import annotations

import struct

import pytest
from helpers import iso_files, pictures
from PIL import Image

from shardwright.schemas.bounds import DEFAULT_BOUNDS
from shardwright.schemas.errors import ImageFault
from shardwright.transforms.images.formats.jpeg2000 import read_header

RGB = Image.fromarray(pictures.rgb_pixels(40, 30))
JP2 = iso_files.jp2_of(RGB)
#: The codestream alone; its segment SIZ begins at its third byte.
STREAM = iso_files.jp2_of(RGB, no_jp2=True)
SIZ = 4
COMPONENTS = SIZ + 36
#: Position of the segment COD, which says how the pixels are coded.
COD = STREAM.index(b"\xff\x52")
NO_SIZE = "the size in its header is not possible"
DAMAGED = "a segment of a header is damaged"
UNSUPPORTED = "UNSUPPORTED_FORMAT"


def _fault(data: bytes) -> tuple[str, str]:
    with pytest.raises(ImageFault) as fault:
        read_header(data, 1 << 22, DEFAULT_BOUNDS)
    return fault.value.reason, fault.value.message.removeprefix("jpeg_2000: ").removeprefix("jpeg2000: ")


def _with(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def test_the_sound_files_are_read() -> None:
    assert read_header(JP2, 1 << 22, DEFAULT_BOUNDS).size == RGB.size
    assert read_header(STREAM, 1 << 22, DEFAULT_BOUNDS).size == RGB.size


@pytest.mark.parametrize(
    ("data", "reason", "message"),
    [
        (JP2.replace(b"jp2h", b"free"), "CORRUPT", "it has no header"),
        (JP2.replace(b"jp2c", b"free"), "TRUNCATED", "it ends before its pixels"),
        (JP2[: JP2.index(b"jp2h") + 10], "TRUNCATED", "it ends before its pixels"),
        (JP2.replace(STREAM[:4], STREAM[2:6]), "CORRUPT", "its codestream does not begin with its size"),
        (STREAM[: COMPONENTS + 4], "TRUNCATED", "it ends in its header"),
        (_with(STREAM, COMPONENTS, b"\0\0"), UNSUPPORTED, "it has 0 components, and at most 4 are read"),
        (_with(STREAM, COMPONENTS + 3, b"\0"), "CORRUPT", NO_SIZE),
        (_with(STREAM, SIZ + 20, struct.pack(">I", 0)), "CORRUPT", NO_SIZE),
        (_with(STREAM, SIZ + 12, struct.pack(">I", 40)), "CORRUPT", NO_SIZE),
        (_with(STREAM, COD, b"\0\0"), "CORRUPT", DAMAGED),
        (_with(STREAM, COD + 2, b"\0\1"), "CORRUPT", DAMAGED),
        (_with(STREAM, COD, b"\xff\x64"), "CORRUPT", "its header does not say how it is coded"),
        (STREAM[: COD + 3], "TRUNCATED", "it ends in a header"),
        (
            iso_files.with_profile(JP2, bytes(16) + b"CMYK" + bytes(108)),
            UNSUPPORTED,
            "CMYK with an ICC profile is not read; convert it to PNG",
        ),
    ],
)  # fmt: skip
def test_each_damage_is_named(data: bytes, reason: str, message: str) -> None:
    assert _fault(data) == (reason, message)


def test_a_header_that_contradicts_the_codestream_is_damage() -> None:
    at = JP2.index(b"ihdr") + 4
    reason, message = _fault(_with(JP2, at, struct.pack(">I", 31)))
    assert reason == "CORRUPT" and message == "its header says (40, 31, 3), its codestream (40, 30)"
