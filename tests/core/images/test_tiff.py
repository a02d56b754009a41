"""TIFFs decode to the pixels of Pillow and tifffile; missing parts and wrong tags are refused."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from helpers import mutants, pictures
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, TiffImagePlugin

from shardwright.core.images.formats.ccitt import BadFaxData, decode_fax
from shardwright.core.images.formats.tiff import layout_of, read_samples
from shardwright.schemas.bounds import DEFAULT_BOUNDS
from shardwright.schemas.errors import ImageFault


def _saved(image: Image.Image, compression: str, rows: int) -> bytes:
    return pictures.file_of(image, "TIFF", compression=compression, tiffinfo={278: rows})


@pytest.mark.sampled(11)
@pytest.mark.parametrize("rows", [120, 16, 7])
@pytest.mark.parametrize("mode", ["L", "P", "RGB", "RGBA", "CMYK", "LA", "I;16", "I", "F"])
@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "packbits", "zstd", "lzma"])
def test_pixels_equal_pillows(compression: str, mode: str, rows: int) -> None:
    image = mutants.picture()
    image = image.convert("L").convert(mode) if mode in ("I;16", "I", "F") else image.convert(mode)
    found = pictures.opened(_saved(image, compression, rows))
    assert found.mode == image.mode
    assert np.array_equal(np.asarray(found), np.asarray(image))


@pytest.mark.parametrize("compression", ["tiff_ccitt", "group3", "group4"])
def test_fax_pixels_equal_pillows(compression: str) -> None:
    image = mutants.picture().convert("1")
    for rows in (120, 16, 7):
        assert np.array_equal(
            np.asarray(pictures.opened(_saved(image, compression, rows))), np.asarray(image)
        )


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpeg_strips_decode_like_libtiff(mode: str) -> None:
    data = _saved(mutants.picture().convert(mode), "jpeg", 16)
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(image)
    assert np.array_equal(np.asarray(pictures.opened(data)), expected)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("tile", [None, (32, 48)])
@pytest.mark.parametrize("planes", ["contig", "separate"])
@pytest.mark.parametrize(
    ("compression", "predictor"),
    [("zlib", False), ("zlib", True), ("lzw", True), ("zstd", True), ("webp", False)],
)
def test_pixels_equal_tifffiles(
    compression: str, predictor: bool, planes: str, tile: tuple[int, int] | None, order: Any
) -> None:
    pixels = np.asarray(mutants.picture(90, 70))
    stored = np.moveaxis(pixels, -1, 0).copy() if planes == "separate" else pixels
    if compression == "webp" and planes == "separate":
        pytest.skip("WebP stores whole pixels")
    arguments: dict[str, Any] = {"compressionargs": {"lossless": True}} if compression == "webp" else {}
    data = pictures.tiff_of(
        stored, photometric="rgb", byteorder=order, tile=tile, compression=compression,
        predictor=predictor, planarconfig=planes, rowsperstrip=None if tile else 17, **arguments,
    )  # fmt: skip
    assert np.array_equal(np.asarray(pictures.opened(data)), pixels)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("predictor", [False, True])
@pytest.mark.parametrize("dtype", ["uint16", "int16", "float32"])
def test_deep_pixels_equal_tifffiles(dtype: str, predictor: bool, order: Any) -> None:
    pixels = (np.asarray(mutants.picture().convert("L")).astype(np.float64) / 255 * 30000).astype(dtype)
    data = pictures.tiff_of(pixels, byteorder=order, compression="zlib", predictor=predictor)
    assert np.array_equal(np.asarray(pictures.opened(data)).astype(dtype), pixels)


@pytest.mark.parametrize("tile", [None, (16, 32)])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("photometric", "extra"),
    [("rgb", ()), ("rgb", ("unassalpha",)), ("rgb", ("assocalpha",)), ("separated", ())],
)
def test_planes_without_compression_equal_whole_pixels(
    photometric: str, extra: tuple[str, ...], order: Any, tile: tuple[int, int] | None
) -> None:
    count = {"rgb": 3, "separated": 4}[photometric] + len(extra)
    for dtype in (np.uint8, np.uint16):
        pixels = np.random.default_rng(3).integers(0, np.iinfo(dtype).max, (37, 41, count), dtype, True)
        found = []
        for planes in ("contig", "separate"):
            stored = np.moveaxis(pixels, -1, 0).copy() if planes == "separate" else pixels
            data = pictures.tiff_of(
                stored, photometric=photometric, planarconfig=planes, extrasamples=extra,
                byteorder=order, tile=tile, rowsperstrip=None if tile else 17,
            )  # fmt: skip
            found.append(pictures.opened(data))
        assert found[0].mode == found[1].mode
        assert np.array_equal(*map(np.asarray, found))


def test_a_plane_that_ends_early_is_truncated() -> None:
    data = pictures.tiff_of(np.zeros((3, 20, 20), np.uint16), photometric="rgb", planarconfig="separate")
    with pytest.raises(ImageFault, match="the file ends before byte"):
        pictures.opened(data[:-100])


def _strip(data: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(data)) as image:
        assert isinstance(image, TiffImagePlugin.TiffImageFile)
        return image.tag_v2[273][0], image.tag_v2[279][0]


def test_a_jpeg_with_fewer_rows_than_its_strip_is_refused() -> None:
    data = _saved(mutants.picture(160, 8), "jpeg", 8)
    assert pictures.opened(data).size == (160, 8)
    for tag in (257, 278):  # rows of the picture, and of a strip
        entry = struct.pack("<HHIH", tag, 3, 1, 8)
        assert entry in data
        data = data.replace(entry, struct.pack("<HHIH", tag, 3, 1, 64))
    with pytest.raises(ImageFault, match="160 x 8 pixels"):
        pictures.opened(data)


@pytest.mark.parametrize("kind", [kind for kind in mutants.TIFF_COMPRESSIONS if kind != "raw"])
def test_a_strip_that_ends_early_is_refused(kind: str) -> None:
    data = mutants.original(kind)
    offset, size = _strip(data)
    emptied = data[: offset + size // 2] + bytes(size - size // 2) + data[offset + size :]
    with pytest.raises(ImageFault):
        pictures.opened(emptied)


def test_a_strip_outside_the_file_is_truncated() -> None:
    data = mutants.original("tiff_lzw")
    with pytest.raises(ImageFault, match="the file ends before byte") as fault:
        pictures.opened(data.replace(struct.pack("<I", _strip(data)[0]), struct.pack("<I", 10**6)))
    assert fault.value.reason == "TRUNCATED"


@given(st.integers(1, 2600), st.lists(st.integers(0, 2600), max_size=12), st.integers(1, 6))
def test_every_run_length_decodes_and_no_row_may_be_missing(width: int, edges: list[int], rows: int) -> None:
    pixels = np.zeros((rows, width), bool)
    for row in range(rows):
        for edge in edges[row:]:
            pixels[row, edge % width :] ^= True
    packed = np.packbits(pixels, axis=1).tobytes()
    for compression in ("group4", "group3", "tiff_ccitt"):
        data = _saved(Image.fromarray(pixels), compression, rows)
        offset, size = _strip(data)
        strip = data[offset : offset + size]
        assert decode_fax(strip, rows, width, compression) == packed
        with pytest.raises(BadFaxData):
            decode_fax(strip, rows + 1, width, compression)


WIDTH, HEIGHT, SAMPLES = 8, 4, 3
PIXELS = np.arange(WIDTH * HEIGHT * SAMPLES, dtype=np.uint8).reshape(HEIGHT, WIDTH, SAMPLES)
#: Numbers of tags (TIFF 6.0, section 8).
BITS, PHOTOMETRIC, OFFSETS, SIZES, FILL_ORDER, PLANES, PREDICTOR = 258, 262, 273, 279, 266, 284, 317
TILE_WIDTH, TILE_LENGTH, TILE_OFFSETS, TILE_SIZES = 322, 323, 324, 325


class Tags(dict[int, Any]):
    """Tags of a file in little-endian byte order."""

    prefix = b"II"


def _read(compression: str, data: bytes, **more: Any) -> np.ndarray:
    """Reads a file with one strip."""
    numbers = TiffImagePlugin.COMPRESSION_INFO_REV
    tags = {256: WIDTH, 257: HEIGHT, BITS: (8,) * SAMPLES, 259: numbers.get(compression, 9999),
            PHOTOMETRIC: 2, 277: SAMPLES, 278: HEIGHT, OFFSETS: (0,), SIZES: (len(data),)}  # fmt: skip
    tags |= {int(name[1:]): value for name, value in more.items()}
    return read_samples(layout_of(Tags(tags), all_planes=True), data, DEFAULT_BOUNDS)  # type: ignore[arg-type]


def _tiles(width: int, length: int, count: int) -> dict[str, Any]:
    return {"t322": width, "t323": length, "t324": (0,) * count, "t325": (96,) * count}


RAW, DEFLATED = PIXELS.tobytes(), zlib.compress(PIXELS.tobytes())


def test_bits_in_reverse_order_are_turned() -> None:
    assert np.array_equal(_read("raw", RAW), PIXELS)
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
        ("an odd", {}, "UNSUPPORTED_FORMAT", "unknown (9999) compression"),
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
