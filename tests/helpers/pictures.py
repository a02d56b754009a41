"""Small asymmetrical pictures, files made of them, and their pixels according to an independent reader."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageCms

from shardwright.core.images.convert import ConvertedImage, convert_image
from shardwright.core.images.decode import load_checked, open_image
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault

WIDTH, HEIGHT = 23, 17
BACKGROUND = (250, 120, 10)

#: EXIF orientation -> how to turn a stored picture upright (EXIF 2.32, tag 274), in numpy.
UPRIGHT: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a, 1),
}
#: EXIF orientation -> its inverse, which turns an upright picture into the stored one.
INVERSE = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 8, 7: 7, 8: 6}


def rgb_pixels(width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """Returns a picture that every rotation and mirroring changes, with steps in every channel."""
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([x * 255 / (width - 1), y * 255 / (height - 1), (x * 3 + y * 7) % 256], -1)
    pixels[: height // 3, : width // 4] = (255, 0, 0)
    return np.rint(pixels).astype(np.uint8)


def gray16_pixels(width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """Returns 16-bit grays over the whole range, including values that clipping would turn white."""
    y, x = np.mgrid[0:height, 0:width]
    values = (x * 2500 + y * 617).astype(np.uint16)
    values[0, :6] = (0, 128, 129, 1000, 40000, 65535)
    return values


def alpha_pixels(width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    """Returns all levels of opacity."""
    y, x = np.mgrid[0:height, 0:width]
    return ((x * 11 + y * 29) % 256).astype(np.uint8)


def noise(size: tuple[int, int], seed: int = 0) -> Image.Image:
    """Returns a picture with details everywhere."""
    width, height = size
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def stored(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Returns an upright picture as it must be stored under an EXIF orientation."""
    return np.ascontiguousarray(UPRIGHT[INVERSE[orientation]](pixels))


def composite(pixels: np.ndarray, alpha: np.ndarray, background: tuple[int, int, int]) -> np.ndarray:
    """Returns alpha over a background, computed in floating point."""
    share = alpha.astype(np.float64)[..., None] / 255
    return np.rint(pixels * share + np.array(background) * (1 - share)).astype(np.uint8)


def file_of(image: Image.Image, format: str, orientation: int = 1, **options: Any) -> bytes:
    """Encodes a picture, with a tag for its EXIF orientation unless that is 1."""
    out = io.BytesIO()
    if orientation != 1:
        options["exif"] = exif_of(orientation)
    image.save(out, format, **options)
    return out.getvalue()


def exif_of(orientation: int) -> bytes:
    """Returns Exif data with an orientation."""
    exif = Image.Exif()
    exif[274] = orientation
    return exif.tobytes()


def tiff_of(pixels: np.ndarray, **options: Any) -> bytes:
    """Encodes samples with tifffile, as gray unless the options say more."""
    out = io.BytesIO()
    tifffile.imwrite(out, pixels, **{"photometric": "minisblack", **options})
    return out.getvalue()


def convert(data: bytes, name: str = "a.jpg", **values: Any) -> ConvertedImage:
    """Converts with these settings, and defaults for the others."""
    settings = replace(ConvertSettings(input=("in",), output="out"), **values)
    settings.check()
    return convert_image(data, name, settings)


def fault(data: bytes, name: str = "a.jpg", **values: Any) -> ImageFault:
    """Returns the fault of a picture that cannot be converted."""
    with pytest.raises(ImageFault) as raised:
        convert(data, name, **values)
    assert raised.value.message and "\n" not in raised.value.message
    return raised.value


def pixels_of(image: ConvertedImage) -> np.ndarray:
    """Decodes the stored picture, and checks its stored size and channels."""
    if image.format == "raw":
        pixels = np.frombuffer(image.encoded, np.uint8)
        return pixels.reshape(image.height, image.width, image.channels)
    with Image.open(io.BytesIO(image.encoded)) as opened:
        assert opened.format == {"jpg": "JPEG"}.get(image.format, image.format.upper())
        assert opened.size == (image.width, image.height)
        if not image.kept:
            assert opened.mode == ("L" if image.channels == 1 else "RGB")
        return np.asarray(opened)


def to_png(data: bytes, name: str = "a.jpg", **values: Any) -> np.ndarray:
    """Returns the pixels of a conversion to PNG."""
    return pixels_of(convert(data, name, image_format="png", **values))


def difference(one: Any, other: Any) -> float:
    """Returns the root of the mean squared difference of two pictures."""
    return float(np.sqrt(np.mean((np.asarray(one).astype(float) - np.asarray(other)) ** 2)))


def srgb_curve(linear: np.ndarray) -> np.ndarray:
    """Returns shares of light as sRGB has them, from 0 to 1 (IEC 61966-2-1)."""
    curved: np.ndarray = np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    return curved


def exif_chunk(orientation: int) -> bytes:
    """Returns a chunk of a PNG with an orientation."""
    return png_chunk(b"eXIf", exif_of(orientation).removeprefix(b"Exif\0\0"))


def png_chunk(kind: bytes, content: bytes) -> bytes:
    crc = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", crc)


def raw_png(size: tuple[int, int], depth: int, color_type: int, rows: list[bytes], *extra: bytes) -> bytes:
    """Returns a PNG written by hand, for kinds that Pillow cannot write."""
    stream = zlib.compress(b"".join(b"\0" + row for row in rows))
    return png_of_stream(size, depth, color_type, stream, *extra)


def png_of_stream(
    size: tuple[int, int], depth: int, color_type: int, stream: bytes, *extra: bytes, interlaced: bool = False
) -> bytes:
    """Returns a PNG with compressed pixels (PNG specification, 11.2)."""
    head = struct.pack(">IIBBBBB", *size, depth, color_type, 0, 0, interlaced)
    chunks = [png_chunk(b"IHDR", head), *extra, png_chunk(b"IDAT", stream), png_chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def icc_profile(primaries: list[tuple[float, float, float]], gamma: float) -> bytes:
    """Returns the profile of sRGB with other colorants (D50 XYZ), and an exponent as its curve."""
    profile = SRGB
    for tag, color in zip((b"rXYZ", b"gXYZ", b"bXYZ"), primaries, strict=True):
        profile = _with_numbers(profile, tag, b"XYZ \0\0\0\0", color)
    return _with_numbers(profile, b"rTRC", b"para\0\0\0\0\0\0\0\0", (gamma,))


def _with_numbers(profile: bytes, tag: bytes, head: bytes, numbers: tuple[float, ...]) -> bytes:
    """Returns a profile in which a tag begins with a head and numbers (ICC.1:2010, 7.3 and 4.6)."""
    entry = profile.index(tag)
    place = int.from_bytes(profile[entry + 4 : entry + 8], "big")
    content = head + b"".join(struct.pack(">i", round(number * 65536)) for number in numbers)
    return profile[:place] + content + profile[place + len(content) :]


#: D50 colorants of sRGB (IEC 61966-2-1, adapted with Bradford).
SRGB_PRIMARIES = [(0.4360, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7141)]
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
#: A profile in which red and blue are swapped.
BGR = SRGB.replace(b"rXYZ", b"tmpX", 1).replace(b"bXYZ", b"rXYZ", 1).replace(b"tmpX", b"bXYZ", 1)


def opened(data: bytes) -> Image.Image:
    """Opens a picture as a conversion does before its first step."""
    limit = 10**6
    return load_checked(open_image(data, "a.png", limit), limit).image


def assert_as_pillow(data: bytes) -> None:
    """Asserts that a picture is opened with the mode and pixels that it has in Pillow."""
    found = opened(data)
    with Image.open(io.BytesIO(data)) as expected:
        assert found.mode == expected.mode
        assert np.array_equal(np.asarray(found), np.asarray(expected))
