"""JPEG 2000: pixels, colors, depths, and files that lie about themselves."""

from __future__ import annotations

import struct

import imagecodecs
import numpy as np
import pytest
from helpers import iso_files, pictures
from PIL import Image

from shardwright.core.images.formats.jpeg2000 import read_header
from shardwright.schemas.bounds import DEFAULT_BOUNDS
from shardwright.schemas.errors import ImageFault

RGB = Image.fromarray(pictures.rgb_pixels(160, 120))
GRAY = RGB.convert("L")
RGBA = RGB.copy()
RGBA.putalpha(GRAY)
SIZE_AT = 4  # of the sides in the segment SIZ, after its marker, length and profile


@pytest.mark.parametrize("options", [{}, {"no_jp2": True}, {"tile_size": (64, 64)}, {"progression": "RPCL"}])
def test_pixels_equal_the_source(options: dict) -> None:
    for image in (RGB, GRAY, RGBA, RGBA.convert("LA")):
        found = pictures.opened(iso_files.jp2_of(image, **options))
        assert np.array_equal(np.asarray(found), np.asarray(image))


def test_sixteen_bits_are_scaled_and_white_stays_white() -> None:
    ramp = np.tile(np.arange(256, dtype=np.uint16) * 257, (8, 1))
    for bits in (4, 10, 12, 16):
        deep = np.stack([ramp, ramp[:, ::-1], ramp], -1) >> (16 - bits)
        deep = deep.astype(np.uint8 if bits <= 8 else np.uint16)
        expected = (deep.astype(int) * 255 + (2**bits - 1) // 2) // (2**bits - 1)
        data = bytes(imagecodecs.jpeg2k_encode(deep, codecformat="JP2", bitspersample=bits))
        assert np.array_equal(np.asarray(pictures.opened(data)), expected), bits
    gray = bytes(imagecodecs.jpeg2k_encode(ramp, codecformat="J2K"))
    assert np.array_equal(pictures.to_png(gray, "a.j2k", color="gray").squeeze(), ramp // 257)


def test_an_icc_profile_of_a_jp2_is_applied() -> None:
    data = iso_files.with_profile(iso_files.jp2_of(RGB), pictures.BGR)
    found = pictures.to_png(data, "a.jp2").astype(int)
    assert np.abs(found - np.asarray(RGB)[..., ::-1]).max() <= 2
    data = iso_files.with_profile(iso_files.jp2_of(RGB), pictures.SRGB)
    assert np.array_equal(pictures.to_png(data), np.asarray(RGB))


@pytest.mark.parametrize("options", [{}, {"no_jp2": True, "tile_size": (64, 64)}])
def test_a_file_that_ends_early_is_truncated(options: dict) -> None:
    data = iso_files.jp2_of(RGB, **options)
    for sixteenth in range(1, 16):
        assert pictures.fault(data[: len(data) * sixteenth // 16]).reason in ("TRUNCATED", "CORRUPT")
    assert pictures.fault(data[: len(data) // 2]).reason == "TRUNCATED"
    assert pictures.fault(data[:-1]).reason == "TRUNCATED"


def test_a_file_that_was_cut_and_closed_is_truncated() -> None:
    data = iso_files.jp2_of(RGB, no_jp2=True, tile_size=(64, 64))
    tiles = [at for at in range(len(data)) if data[at : at + 4] == b"\xff\x90\0\x0a"]
    assert len(tiles) == 6
    closed = data[: tiles[4]] + b"\xff\xd9"
    with pytest.raises(ImageFault, match="2 of 6 tiles are missing") as fault:
        pictures.opened(closed)
    assert fault.value.reason == "TRUNCATED"


def test_the_size_of_the_header_is_that_of_the_codestream() -> None:
    for options, reason in (({}, "CORRUPT"), ({"no_jp2": True}, "TOO_MANY_PIXELS")):
        data = iso_files.jp2_of(RGB, **options)
        at = data.index(b"\xff\x51") + 2 + SIZE_AT
        huge = data[:at] + struct.pack(">II", 60_000, 60_000) + data[at + 8 :]
        assert pictures.fault(huge).reason == reason


SMALL = Image.fromarray(pictures.rgb_pixels(40, 30))
JP2 = iso_files.jp2_of(SMALL)
#: The codestream alone; its segment SIZ begins at its third byte.
STREAM = iso_files.jp2_of(SMALL, no_jp2=True)
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
            _with(JP2, JP2.index(b"ihdr") + 4, struct.pack(">I", 31)),
            "CORRUPT",
            "its header says (40, 31, 3), its codestream (40, 30)",
        ),
        (
            iso_files.with_profile(JP2, bytes(16) + b"CMYK" + bytes(108)),
            UNSUPPORTED,
            "CMYK with an ICC profile is not read; convert it to PNG",
        ),
    ],
)  # fmt: skip
def test_each_damage_is_named(data: bytes, reason: str, message: str) -> None:
    assert _fault(data) == (reason, message)
