"""TIFFs whose tags contradict each other or are not read: each is refused with its own sentence."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

from shardwright.schemas.bounds import DEFAULT_BOUNDS
from shardwright.schemas.errors import ImageFault
from shardwright.transforms.images.formats.tiff_pixels import read_samples

WIDTH, HEIGHT, SAMPLES = 8, 4, 3
PIXELS = np.arange(WIDTH * HEIGHT * SAMPLES, dtype=np.uint8).reshape(HEIGHT, WIDTH, SAMPLES)
#: Numbers of tags (TIFF 6.0, section 8).
BITS, PHOTOMETRIC, OFFSETS, SIZES, FILL_ORDER, PLANES, PREDICTOR = 258, 262, 273, 279, 266, 284, 317
TILE_WIDTH, TILE_LENGTH, TILE_OFFSETS, TILE_SIZES = 322, 323, 324, 325


class Tags(dict[int, Any]):
    """Tags of a file in little-endian byte order."""

    prefix = b"II"


def _tags(data: bytes, **more: Any) -> Tags:
    """Returns the tags of a file with one strip."""
    tags = {256: WIDTH, 257: HEIGHT, BITS: (8,) * SAMPLES, PHOTOMETRIC: 2, 277: SAMPLES, 278: HEIGHT,
            OFFSETS: (0,), SIZES: (len(data),)}  # fmt: skip
    return Tags(tags | {int(name[1:]): value for name, value in more.items()})


def _read(compression: str, data: bytes, **more: Any) -> np.ndarray:
    return read_samples(_tags(data, **more), compression, data, DEFAULT_BOUNDS)  # type: ignore[arg-type]


def _tiles(width: int, length: int, count: int) -> dict[str, Any]:
    return {"t322": width, "t323": length, "t324": (0,) * count, "t325": (96,) * count}


RAW, DEFLATED = PIXELS.tobytes(), zlib.compress(PIXELS.tobytes())


def test_sound_samples_are_read() -> None:
    assert np.array_equal(_read("raw", RAW), PIXELS)
    assert np.array_equal(_read("tiff_adobe_deflate", DEFLATED), PIXELS)
    differences = np.diff(PIXELS, axis=1, prepend=np.zeros((HEIGHT, 1, SAMPLES), np.uint8))
    packed = zlib.compress(differences.tobytes())
    assert np.array_equal(_read("tiff_adobe_deflate", packed, t317=2), PIXELS)


def test_bits_in_reverse_order_are_turned() -> None:
    turned = np.packbits(np.unpackbits(PIXELS, bitorder="little")).tobytes()
    assert np.array_equal(_read("raw", turned, t266=2), PIXELS)


@pytest.mark.parametrize(
    ("compression", "tags", "reason", "message"),
    [
        ("raw", {"t262": 6}, "UNSUPPORTED_FORMAT", "YCbCr without JPEG compression"),
        ("raw", {"t258": (8, 5, 8)}, "UNSUPPORTED_FORMAT", "samples of [5, 8] bits"),
        ("raw", {"t258": (5, 5, 5)}, "UNSUPPORTED_FORMAT", "samples of 5 bits"),
        ("raw", _tiles(0, 16, 1), "CORRUPT", "its strips or tiles have 0 x 16 pixels"),
        ("raw", _tiles(1 << 15, 1 << 15, 1), "CORRUPT", "pixels is larger than the image"),
        ("raw", _tiles(4, 4, 1), "TRUNCATED", "it has 1 of 2 strips or tiles"),
        ("raw", {"t258": (1,), "t277": 1, **_tiles(4, 4, 2)}, "CORRUPT", "its tiles are 4 pixels wide"),
        ("an odd", {}, "UNSUPPORTED_FORMAT", "an odd compression"),
        ("tiff_adobe_deflate", {"t317": 7, "t257": 2, "t278": 2, "t258": (16,) * 3},
         "UNSUPPORTED_FORMAT", "predictor 7"),
        ("tiff_adobe_deflate", {"t317": 7}, "UNSUPPORTED_FORMAT", "predictor 7"),
        ("tiff_adobe_deflate", {"t317": 3}, "UNSUPPORTED_FORMAT",
         "a floating point predictor over samples of 8 bits"),
        ("jpeg", {"t258": (16,) * 3}, "UNSUPPORTED_FORMAT", "JPEG samples of 16 bits"),
        ("webp", {"t258": (16,) * 3}, "UNSUPPORTED_FORMAT", "WebP with 3 samples of 16 bits"),
        ("webp", {}, "CORRUPT", "webp: "),
        ("jpeg", {}, "CORRUPT", "jpeg: "),
    ],
)  # fmt: skip
def test_each_fault_is_named(compression: str, tags: dict[str, Any], reason: str, message: str) -> None:
    data = DEFLATED if compression == "tiff_adobe_deflate" else RAW
    with pytest.raises(ImageFault) as fault:
        _read(compression, data, **tags)
    assert (fault.value.reason, message in fault.value.message) == (reason, True), fault.value.message
