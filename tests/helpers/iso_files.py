"""Files in the formats of ISO and ITU, made by their reference libraries, and changes to their boxes."""

from __future__ import annotations

from typing import Any

import imagecodecs
import numpy as np
import pytest
from PIL import Image

from helpers.pictures import file_of

#: Bytes before the first box of a JPEG XL that could be repeated: its signature and its type.
_BEGINNING = 32


def heif_of(image: Image.Image, orientation: int = 1, **options: Any) -> bytes:
    """Encodes a HEIF with one frame; skips the test without the extra `heif`."""
    pytest.importorskip("pillow_heif").register_heif_opener()
    return file_of(image, "HEIF", orientation, **options)


def jxl_of(image: Image.Image, **options: Any) -> bytes:
    """Encodes a JPEG XL, without loss unless the options say otherwise."""
    return bytes(imagecodecs.jpegxl_encode(np.asarray(image), **{"lossless": True, **options}))


def jp2_of(image: Image.Image, **options: Any) -> bytes:
    """Encodes a JPEG 2000, without loss unless the options say otherwise."""
    return file_of(image, "JPEG2000", **options)


def box(kind: bytes, content: bytes) -> bytes:
    """Returns a box."""
    return (8 + len(content)).to_bytes(4, "big") + kind + content


def jxl_of_boxes(count: int) -> bytes:
    """Returns a JPEG XL with this many boxes."""
    data = jxl_of(Image.new("L", (8, 8)), usecontainer=True)
    return data[:_BEGINNING] + box(b"free", b"") * (count - _count(data)) + data[_BEGINNING:]


def _count(data: bytes) -> int:
    position = count = 0
    while position < len(data):
        position += int.from_bytes(data[position : position + 4], "big") or len(data)
        count += 1
    return count


def with_profile(data: bytes, profile: bytes) -> bytes:
    """Returns a JP2 with an ICC profile instead of its color space."""
    old = data.index(b"colr") - 4
    new = box(b"colr", b"\2\0\0" + profile)
    grown = len(new) - int.from_bytes(data[old : old + 4], "big")
    header = data.index(b"jp2h") - 4
    size = int.from_bytes(data[header : header + 4], "big") + grown
    rest = data[old + len(new) - grown :]
    return data[:header] + size.to_bytes(4, "big") + data[header + 4 : old] + new + rest
