"""Decodes JPEGs with libjpeg-turbo and reports the damage that Pillow hides.

libjpeg repairs what it can and counts warnings. Pillow, TensorFlow and OpenCV drop them, so half a gray
picture passes for a photograph. simplejpeg can turn the first warning into an error; its pixels are the
same as Pillow's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import simplejpeg
from PIL import Image

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault, words_of
from shardwright.transforms.images.jpeg_segments import START_OF_SCAN, jpeg_segments

#: Pillow mode -> (simplejpeg's color space, Pillow's raw mode for it).
_LAYOUTS = {"RGB": ("RGBX", "RGBX"), "L": ("GRAY", "L"), "CMYK": ("CMYK", "CMYK")}
#: A file with this many runs of stray bytes is decoded with them; libjpeg's warning then decides.
_MAX_CLEANINGS = 8
#: libjpeg's warnings (jerror.h of libjpeg-turbo 3.1) for data that ends before the picture is complete.
_TRUNCATED = ("premature end",)
#: libjpeg's warnings about metadata, which do not concern the pixels.
_HARMLESS = ("unknown jfif revision", "unknown adobe color transform", "bad icc marker")
_EXTRANEOUS = re.compile(r"(\d+) extraneous bytes before marker 0x([0-9a-f]{2})", re.IGNORECASE)
#: Errors of TurboJPEG for files that libjpeg decodes, such as unusual chroma subsampling.
_REFUSED_BY_TURBOJPEG = ("could not determine subsampling", "could not determine colorspace")


@dataclass(frozen=True, slots=True)
class DecodedJpeg:
    """A decoded JPEG.

    Attributes:
      image: the pixels, in the requested mode.
      note: a harmless warning of libjpeg; empty for none. All pixels are there.
      damage: a warning of libjpeg about missing or wrong pixels; empty for none.
    """

    image: Image.Image
    note: str = ""
    damage: str = ""


class CannotReport(Exception):
    """TurboJPEG does not support this kind of JPEG, so damage cannot be detected."""


def decode_jpeg(
    data: bytes, mode: str, size: tuple[int, int], factor: int, inverted: bool, keep_damaged: bool
) -> DecodedJpeg:
    """Decodes a JPEG, with DCT scaling on request.

    Args:
      data: the whole file.
      mode: Pillow's mode of the picture: RGB, L or CMYK.
      size: width and height of the result, in pixels: ceil(side / factor).
      factor: factor of the DCT scaling: 1, 2, 4 or 8.
      inverted: whether CMYK values are stored inverted, as Adobe's programs do.
      keep_damaged: whether to return a damaged picture instead of raising an `ImageFault`.

    Raises:
      ImageFault: if the file is damaged or cannot be decoded.
      CannotReport: if TurboJPEG does not support this kind of JPEG.
    """
    note = ""
    whole = data
    for _ in range(_MAX_CLEANINGS):
        try:
            return DecodedJpeg(_decode(data, mode, size, factor, inverted, strict=True), note)
        except ValueError as error:
            warning = _words_of(error)
        if any(words in warning.lower() for words in _REFUSED_BY_TURBOJPEG):
            raise CannotReport(warning)
        cleaned = _without_harmless(data, warning)
        if cleaned is None:
            break
        note, data = note or warning, cleaned
    if not keep_damaged:
        raise _fault(warning)
    try:
        return DecodedJpeg(_decode(whole, mode, size, factor, inverted, strict=False), note, warning)
    except ValueError as error:
        raise _fault(_words_of(error)) from error


def _pixels(data: bytes, space: str, size: tuple[int, int], factor: int, strict: bool) -> np.ndarray:
    width, height = size
    pixels: np.ndarray = simplejpeg.decode_jpeg(
        data, space, min_height=height, min_width=width, min_factor=factor, strict=strict
    )
    if pixels.shape[:2] != (height, width):
        raise ValueError(
            f"it decodes to {pixels.shape[1]} x {pixels.shape[0]} pixels, not {width} x {height}"
        )
    return pixels


def _decode(
    data: bytes, mode: str, size: tuple[int, int], factor: int, inverted: bool, strict: bool
) -> Image.Image:
    space, raw_mode = _LAYOUTS[mode]
    pixels = _pixels(data, space, size, factor, strict)
    if mode == "CMYK" and inverted:
        raw_mode = "CMYK;I"
    if raw_mode == "RGBX":
        return wrap_rgb(pixels)
    return Image.frombytes(mode, size, pixels, "raw", raw_mode)


def wrap_rgb(pixels: np.ndarray) -> Image.Image:
    """Wraps an array of four bytes per pixel as a picture in mode RGB; copies it with Pillow 13 and later.

    Args:
      pixels: uint8 [height, width, 4], contiguous; the fourth byte is ignored.
    """
    height, width = pixels.shape[:2]
    image = Image.frombuffer("RGBX", (width, height), pixels, "raw", "RGBX", 0, 1)
    if not hasattr(image.im, "setmode"):  # Pillow 13 removed it
        return Image.frombytes("RGB", (width, height), pixels, "raw", "RGBX")
    image.im.setmode("RGB")
    return image._new(image.im)


def _words_of(error: ValueError) -> str:
    """Returns libjpeg's message: `tjDecompress2(): Premature end of JPEG file` without the function."""
    return words_of(error).partition("(): ")[2] or words_of(error)


def _fault(warning: str) -> ImageFault:
    truncated = any(words in warning.lower() for words in _TRUNCATED)
    reason = QuarantineReason.TRUNCATED if truncated else QuarantineReason.CORRUPT
    return ImageFault(reason, Stage.DECODE, f"jpeg: {warning}")


def _without_harmless(data: bytes, warning: str) -> bytes | None:
    """Removes from a file the bytes that cause a harmless warning; returns None if the warning means damage.

    libjpeg reports only its first warning. Decoding the file again without these bytes finds damage after
    them.
    """
    extraneous = _EXTRANEOUS.search(warning)
    if extraneous:
        count, marker = int(extraneous[1]), int(extraneous[2], 16)
        return _without_stray_bytes(data, count, marker)
    if any(words in warning.lower() for words in _HARMLESS):
        return _without_metadata(data)
    return None


def _without_stray_bytes(data: bytes, count: int, marker: int) -> bytes | None:
    """Drops `count` stray bytes before a marker; returns None if they may be a scan's data.

    Bytes between two segments are always stray. After a scan, bytes that are all 0x00 or all 0xFF are
    padding; otherwise the decoder lost its place and did not read a part of the picture.
    """
    previous_end, previous = 2, 0
    for found, start, end, _ in jpeg_segments(data):
        if found == marker:
            stray = data[start - count : start] if start - count >= previous_end else b""
            if previous == START_OF_SCAN:
                if stray and not stray.strip(b"\0" if stray[0] == 0 else b"\xff"):
                    return data[: start - count] + data[start:]
            elif start > previous_end:
                return data[:previous_end] + data[start:]
        previous_end, previous = end, found
    return None


def _without_metadata(data: bytes) -> bytes | None:
    """Drops the segments with a profile or a program's own data (APP0 to APP15, except Adobe's)."""
    kept, position, dropped = [], 0, False
    for marker, start, end, _ in jpeg_segments(data):
        if marker == START_OF_SCAN:
            break
        if 0xE0 <= marker <= 0xEF and marker != 0xEE:
            kept.append(data[position:start])
            position, dropped = end, True
    return b"".join((*kept, data[position:])) if dropped else None
