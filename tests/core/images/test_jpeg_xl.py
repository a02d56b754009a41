"""JPEG XL: pixels, colors, orientation, files that lie about themselves, and headers written bit by bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import imagecodecs
import numpy as np
import pytest
from helpers import iso_files, pictures
from PIL import Image

from shardwright.core.images.decode import load_checked, open_image, upright
from shardwright.core.images.formats.jpeg_xl import Header, decode_jpeg_xl, read_header
from shardwright.schemas.bounds import DEFAULT_BOUNDS
from shardwright.schemas.errors import ImageFault

RGB = Image.fromarray(pictures.rgb_pixels(160, 120))
GRAY = RGB.convert("L")
RGBA = RGB.copy()
RGBA.putalpha(GRAY)


@pytest.mark.parametrize("container", [False, True])
def test_pixels_equal_the_source(container: bool) -> None:
    for image in (RGB, GRAY, RGBA, RGBA.convert("LA")):
        opened = open_image(iso_files.jxl_of(image, usecontainer=container), "a.jxl", 1 << 22)
        assert (opened.size, opened.image.mode) == (image.size, image.mode)
        assert np.array_equal(np.asarray(load_checked(opened, 1 << 22).image), np.asarray(image))
    lossy = iso_files.jxl_of(RGB, lossless=False, level=95)
    assert pictures.difference(pictures.opened(lossy), RGB) < 5


@pytest.mark.parametrize(
    "size", [(8, 8), (1, 1), (256, 256), (257, 3), (3, 9000), (300, 200), (1600, 900), (120, 100), (64, 48)]
)
def test_the_header_has_the_size(size: tuple[int, int]) -> None:
    header = read_header(iso_files.jxl_of(Image.new("L", size)), DEFAULT_BOUNDS)
    assert (header.size, header.is_gray, header.is_animated) == (size, True, False)


def test_the_first_frame_of_an_animation_is_used() -> None:
    frames = np.stack([np.asarray(RGB), 255 - np.asarray(RGB)])
    data = bytes(imagecodecs.jpegxl_encode(frames, lossless=True))
    assert pictures.convert(data, "a.jxl").animated
    assert np.array_equal(pictures.to_png(data, "a.jxl"), np.asarray(RGB))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_jpeg_inside_is_decoded_as_that_jpeg(orientation: int) -> None:
    stored = Image.fromarray(pictures.stored(np.asarray(RGB), orientation))
    jpeg = pictures.file_of(stored, "JPEG", orientation, quality=95)
    data = bytes(imagecodecs.jpegxl_encode_jpeg(jpeg))
    opened = open_image(data, "a.jxl", 1 << 22)
    assert opened.data == jpeg
    assert np.array_equal(pictures.to_png(data), pictures.to_png(jpeg))
    assert pictures.difference(upright(load_checked(opened, 1 << 22).image, opened.orientation), RGB) < 12


def test_colors_other_than_srgb_are_named() -> None:
    deep = np.asarray(RGB).astype(np.uint16) * 257
    fault = pictures.fault(bytes(imagecodecs.jpegxl_encode(deep, lossless=True)))
    assert fault.reason == "UNSUPPORTED_FORMAT" and "its colors are not sRGB" in fault.message


@pytest.mark.parametrize("options", [{}, {"usecontainer": True}, {"lossless": False, "level": 80}])
def test_a_file_that_ends_early_is_truncated(options: dict) -> None:
    data = iso_files.jxl_of(RGB, **options)
    for sixteenth in range(1, 16):
        assert pictures.fault(data[: len(data) * sixteenth // 16]).reason == "TRUNCATED"


def test_a_header_of_absurd_size_is_refused_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagecodecs, "jpegxl_decode", None)
    bits = (
        "0" + "11" + f"{59_999:030b}"[::-1] + "001"[::-1] + "1"
    )  # a square; everything else has its default
    number = int(bits[::-1], 2)
    data = b"\xff\x0a" + number.to_bytes(8, "little") + bytes(100)
    fault = pictures.fault(data)
    assert fault.reason == "TOO_MANY_PIXELS" and "3600000000 pixels" in fault.message


#: A number and the number of its bits.
Field = tuple[int, int]
NO, YES = (0, 1), (1, 1)
SIZE: list[Field] = [YES, (0, 5), (7, 3)]  # 8 pixels down, and twice as many across
EIGHT_BITS: list[Field] = [NO, (0, 2)]
SRGB: list[Field] = [YES]
NO_CHANNELS: list[Field] = [(0, 2)]
ONE_CHANNEL: list[Field] = [(1, 2)]
#: A point with the smallest coordinates.
POINT: list[Field] = [(0, 2), (0, 19)] * 2
SRGB_TRANSFER: list[Field] = [NO, (2, 2), (11, 4)]


def _codestream(*fields: Field) -> bytes:
    bits = "".join(f"{value:0{count}b}"[::-1] for value, count in fields)
    return b"\xff\x0a" + int(bits[::-1], 2).to_bytes(-(-len(bits) // 8), "little")


def _picture(
    *colors: Field,
    more: list[Field] | None = None,
    depth: list[Field] = EIGHT_BITS,
    channels: list[Field] = NO_CHANNELS,
    is_xyb: bool = False,
) -> bytes:
    """Returns a codestream that states its colors."""
    optional = [NO] if more is None else [YES, *more]
    xyb = YES if is_xyb else NO
    return _codestream(*SIZE, NO, *optional, *depth, NO, *channels, xyb, *(colors or SRGB))


def _channel(kind: list[Field], *rest: Field) -> list[Field]:
    """Returns one channel with a name of three bytes."""
    name = [(1, 2), (3, 4), *[(ord("x"), 8)] * 3]
    return [*ONE_CHANNEL, NO, *kind, *EIGHT_BITS, (0, 2), *name, *rest]


def _fault(data: bytes) -> ImageFault:
    with pytest.raises(ImageFault) as fault:
        read_header(data, DEFAULT_BOUNDS)
    return fault.value


#: Without fields that say otherwise.
PLAIN = Header((16, 8), bits=8, is_gray=False, alpha="", is_animated=False, channels=3, is_jpeg=False)
GRAY_SRGB: list[Field] = [NO, NO, (1, 2), (1, 2), *SRGB_TRANSFER]
PREVIEW_IN_EIGHTHS: list[Field] = [YES, YES, (0, 2), (0, 3), (0, 2)]
PREVIEW_IN_PIXELS: list[Field] = [YES, NO, (1, 2), (200, 8), (1, 3)]


@pytest.mark.parametrize(
    ("data", "differences"),
    [
        (_picture(), {}),
        (_picture(more=[(5, 3), YES, *SIZE, *PREVIEW_IN_EIGHTHS, NO]), {"size": (8, 16)}),
        (_picture(more=[(5, 3), YES, *SIZE, *PREVIEW_IN_PIXELS, NO]), {"size": (8, 16)}),
        (_picture(depth=[NO, (1, 2)]), {"bits": 10}),
        (_picture(depth=[NO, (3, 2), (15, 6)]), {"bits": 16}),
        (_picture(depth=[YES, (0, 2), (7, 4)]), {"bits": 32}),
        (_picture(depth=[YES, (1, 2), (4, 4)]), {"bits": 16}),
        (_picture(channels=[*ONE_CHANNEL, YES]), {"alpha": "A", "channels": 4}),
        (
            _picture(*GRAY_SRGB, channels=[(2, 2), (0, 4), YES, *_channel([(1, 2)])[1:]]),  # alpha and depth
            {"is_gray": True, "alpha": "A", "channels": 3},
        ),
        (_picture(channels=_channel([(0, 2)], NO)), {"alpha": "A", "channels": 4}),
        (_picture(channels=_channel([(0, 2)], YES)), {"alpha": "a", "channels": 4}),
        (_picture(channels=_channel([(2, 2), (0, 4)], *[(0, 32)] * 2)), {"channels": 4}),  # a spot color
        (_picture(channels=_channel([(2, 2), (3, 4)], (0, 2))), {"channels": 4}),  # a color filter
        (_picture(channels=_channel([(1, 2)])), {"channels": 4}),  # depth
        (_picture(*GRAY_SRGB), {"is_gray": True, "channels": 1}),
        # libjxl or the JPEG replaces the profile.
        (_picture(NO, YES, (1, 2), is_xyb=True), {"is_gray": True, "channels": 1}),
        (iso_files.box(b"jbrd", b"") + iso_files.box(b"jxlc", _picture(NO, YES, (0, 2))), {"is_jpeg": True}),
    ],
)
def test_headers_are_read(data: bytes, differences: dict[str, Any]) -> None:
    assert read_header(data, DEFAULT_BOUNDS) == replace(PLAIN, **differences)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_picture(channels=_channel([(2, 2), (2, 4)])), "CMYK is not read"),
        (_picture(NO, NO, (2, 2), (0, 4)), "its color space is not read"),
        (_picture(NO, YES, (0, 2)), "the ICC profile in its codestream is not read"),
        (_picture(NO, NO, (0, 2), (2, 2), (0, 4), *POINT, (1, 2), *SRGB_TRANSFER), "its colors are not sRGB"),
        (
            _picture(NO, NO, (0, 2), (1, 2), (2, 2), (0, 4), *POINT * 3, *SRGB_TRANSFER),
            "its colors are not sRGB",
        ),
        (_picture(NO, NO, (0, 2), (1, 2), (1, 2), YES), "its colors are not sRGB"),
    ],
)
def test_other_colors_are_named(data: bytes, message: str) -> None:
    fault = _fault(data)
    assert fault.reason == "UNSUPPORTED_FORMAT" and message in fault.message


def test_a_header_that_ends_early_is_truncated() -> None:
    whole = _picture(*GRAY_SRGB)
    for length in range(2, len(whole)):
        assert _fault(whole[:length]).message == "jpeg_xl: it ends in its header"
    assert _fault(iso_files.box(b"jbrd", b"")).message == "jpeg_xl: it has no pixels"


def test_deep_pixels_get_eight_bits() -> None:
    shares = np.linspace(0, 1, 16 * 8 * 3, dtype=np.float32).reshape(8, 16, 3)
    expected = np.rint(shares * np.float32(255)).astype(int)
    for pixels, bits in ((shares, 32), (np.rint(shares * 65535).astype(np.uint16), 16)):
        data = bytes(imagecodecs.jpegxl_encode(pixels, lossless=True))
        header = replace(PLAIN, bits=bits)
        found = np.asarray(decode_jpeg_xl(data, header)).astype(int)
        assert np.abs(found - expected).max() <= (bits == 16)


@pytest.mark.parametrize("value", [-0.5, 1.5, float("nan")])
def test_a_brightness_without_a_definition_is_refused(value: float) -> None:
    pixels = np.full((8, 16, 3), 0.5, np.float32)
    pixels[3, 3] = value
    data = bytes(imagecodecs.jpegxl_encode(pixels, lossless=True))
    with pytest.raises(ImageFault, match=r"pixels outside 0\.\.1 have no defined brightness"):
        decode_jpeg_xl(data, replace(PLAIN, bits=32))


def test_pixels_of_another_size_than_the_header_are_damage() -> None:
    data = bytes(imagecodecs.jpegxl_encode(pictures.rgb_pixels(16, 8), lossless=True))
    with pytest.raises(ImageFault, match="do not have the size of its header") as fault:
        decode_jpeg_xl(data, replace(PLAIN, size=(8, 16)))
    assert fault.value.reason == "CORRUPT"
    with pytest.raises(RuntimeError):
        decode_jpeg_xl(b"\xff\x0a" + b"\xff" * 100, PLAIN)
