"""JPEG XL: pixels, colors, orientation, and files that lie about themselves."""

from __future__ import annotations

import imagecodecs
import numpy as np
import pytest
from helpers import iso_files, pictures
from PIL import Image

from shardwright.schemas.bounds import DEFAULT_BOUNDS
from shardwright.schemas.errors import ImageFault
from shardwright.transforms.images.decode import load, open_image, upright
from shardwright.transforms.images.jpeg_xl import read_header

RGB = Image.fromarray(pictures.rgb_pixels(160, 120))
GRAY = RGB.convert("L")
RGBA = RGB.copy()
RGBA.putalpha(GRAY)


def _reason(data: bytes, **settings: object) -> str:
    with pytest.raises(ImageFault) as fault:
        pictures.convert(data, "a.jxl", **settings)
    return fault.value.reason


def _difference(one: Image.Image, other: Image.Image) -> float:
    return float(np.sqrt(np.mean((np.asarray(one).astype(float) - np.asarray(other)) ** 2)))


@pytest.mark.parametrize("container", [False, True])
def test_pixels_equal_the_source(container: bool) -> None:
    for image in (RGB, GRAY, RGBA, RGBA.convert("LA")):
        opened = open_image(iso_files.jxl_of(image, usecontainer=container), "a.jxl", 1 << 22)
        assert (opened.size, opened.image.mode) == (image.size, image.mode)
        assert np.array_equal(np.asarray(load(opened, 1 << 22)), np.asarray(image))
    lossy = iso_files.jxl_of(RGB, lossless=False, level=95)
    assert _difference(load(open_image(lossy, "a.jxl", 1 << 22), 1 << 22), RGB) < 5


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
    assert _difference(upright(load(opened, 1 << 22), opened.orientation), RGB) < 12
    kept = pictures.convert(data, "a.jxl", image_format="keep")
    assert (kept.format, kept.kept) == ("png", False)


def test_colors_other_than_srgb_are_named() -> None:
    deep = np.asarray(RGB).astype(np.uint16) * 257
    with pytest.raises(ImageFault, match="its colors are not sRGB") as fault:
        pictures.convert(bytes(imagecodecs.jpegxl_encode(deep, lossless=True)), "a.jxl")
    assert fault.value.reason == "UNSUPPORTED_FORMAT"


@pytest.mark.parametrize("options", [{}, {"usecontainer": True}, {"lossless": False, "level": 80}])
def test_a_file_that_ends_early_is_truncated(options: dict) -> None:
    data = iso_files.jxl_of(RGB, **options)
    for sixteenth in range(1, 16):
        assert _reason(data[: len(data) * sixteenth // 16]) == "TRUNCATED"


def test_a_header_of_absurd_size_is_refused_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagecodecs, "jpegxl_decode", None)
    bits = (
        "0" + "11" + f"{59_999:030b}"[::-1] + "001"[::-1] + "1"
    )  # a square; everything else has its default
    number = int(bits[::-1], 2)
    data = b"\xff\x0a" + number.to_bytes(8, "little") + bytes(100)
    with pytest.raises(ImageFault, match="3600000000 pixels") as fault:
        pictures.convert(data, "a.jxl")
    assert fault.value.reason == "TOO_MANY_PIXELS"
