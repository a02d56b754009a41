"""TIFF, JPEG 2000 and JPEG XL: pixels, colors, depths, and files that lie about themselves."""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import replace
from typing import Any

import imagecodecs
import numpy as np
import pytest
from helpers import iso_files, mutants, pictures
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, TiffImagePlugin

from shardwright.core.images.decode import load_checked, open_image, upright
from shardwright.core.images.formats import jpeg_xl
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


@pytest.mark.parametrize(
    ("compression", "mode"),
    [("tiff_ccitt", "1"), ("group3", "1"), ("group4", "1"), ("jpeg", "L"), ("jpeg", "RGB"), ("jpeg", "CMYK")],
)
def test_fax_and_jpeg_strips_decode_like_libtiff(compression: str, mode: str) -> None:
    for rows in (120, 16, 8 if compression == "jpeg" else 7):
        pictures.assert_as_pillow(_saved(mutants.picture().convert(mode), compression, rows))


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
    assert "the file ends before byte" in pictures.fault(data[:-100]).message


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
    assert "160 x 8 pixels" in pictures.fault(data).message


@pytest.mark.parametrize("kind", [kind for kind in mutants.TIFF_COMPRESSIONS if kind != "raw"])
def test_a_strip_that_ends_early_is_refused(kind: str) -> None:
    data = mutants.original(kind)
    offset, size = _strip(data)
    emptied = data[: offset + size // 2] + bytes(size - size // 2) + data[offset + size :]
    pictures.fault(emptied)


def test_a_strip_outside_the_file_is_truncated() -> None:
    data = mutants.original("tiff_lzw")
    fault = pictures.fault(data.replace(struct.pack("<I", _strip(data)[0]), struct.pack("<I", 10**6)))
    assert fault.reason == "TRUNCATED" and "the file ends before byte" in fault.message


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
BITS, PHOTOMETRIC, OFFSETS, SIZES = 258, 262, 273, 279


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


@pytest.mark.parametrize(
    "data",
    [
        *(iso_files.jp2_of(RGB, **options) for options in ({}, {"no_jp2": True, "tile_size": (64, 64)})),
        *(
            iso_files.jxl_of(RGB, **options)
            for options in ({}, {"usecontainer": True}, {"lossless": False, "level": 80})
        ),
    ],
)
def test_a_file_that_ends_early_is_truncated(data: bytes) -> None:
    for sixteenth in range(1, 16):
        assert pictures.fault(data[: len(data) * sixteenth // 16]).reason == "TRUNCATED"
    assert pictures.fault(data[:-1]).reason == "TRUNCATED"


def test_a_file_that_was_cut_and_closed_is_truncated() -> None:
    data = iso_files.jp2_of(RGB, no_jp2=True, tile_size=(64, 64))
    tiles = [at for at in range(len(data)) if data[at : at + 4] == b"\xff\x90\0\x0a"]
    assert len(tiles) == 6
    fault = pictures.fault(data[: tiles[4]] + b"\xff\xd9")
    assert fault.reason == "TRUNCATED" and "2 of 6 tiles are missing" in fault.message


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
    fault = pictures.fault(data)
    assert (fault.reason, fault.message.partition(": ")[2]) == (reason, message)


@pytest.mark.parametrize("container", [False, True])
def test_pixels_of_jpeg_xl_equal_the_source(container: bool) -> None:
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
    header = jpeg_xl.read_header(iso_files.jxl_of(Image.new("L", size)), DEFAULT_BOUNDS)
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


def test_a_header_of_absurd_size_is_refused_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagecodecs, "jpegxl_decode", None)
    square = _codestream(NO, (3, 2), (59_999, 30), (1, 3), YES)  # everything else has its default
    fault = pictures.fault(square + bytes(100))
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


#: Without fields that say otherwise.
PLAIN = jpeg_xl.Header((16, 8), bits=8, is_gray=False, alpha="", is_animated=False, channels=3, is_jpeg=False)
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
    assert jpeg_xl.read_header(data, DEFAULT_BOUNDS) == replace(PLAIN, **differences)


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
        (imagecodecs.jpegxl_encode(np.asarray(RGB, np.uint16), lossless=True), "its colors are not sRGB"),
    ],
)
def test_other_colors_are_named(data: bytes, message: str) -> None:
    fault = pictures.fault(data)
    assert fault.reason == "UNSUPPORTED_FORMAT" and message in fault.message


def test_a_header_that_ends_early_is_truncated() -> None:
    whole = _picture(*GRAY_SRGB)
    for length in range(2, len(whole)):
        assert pictures.fault(whole[:length]).message == "jpeg_xl: it ends in its header"
    no_pixels = iso_files.box(b"JXL ", b"\r\n\x87\n") + iso_files.box(b"jbrd", b"")
    assert pictures.fault(no_pixels).message == "jpeg_xl: it has no pixels"


def test_deep_pixels_get_eight_bits() -> None:
    shares = np.linspace(0, 1, 16 * 8 * 3, dtype=np.float32).reshape(8, 16, 3)
    expected = np.rint(shares * np.float32(255)).astype(int)
    for pixels, bits in ((shares, 32), (np.rint(shares * 65535).astype(np.uint16), 16)):
        data = bytes(imagecodecs.jpegxl_encode(pixels, lossless=True))
        header = replace(PLAIN, bits=bits)
        found = np.asarray(jpeg_xl.decode_jpeg_xl(data, header)).astype(int)
        assert np.abs(found - expected).max() <= (bits == 16)


@pytest.mark.parametrize("value", [-0.5, 1.5, float("nan")])
def test_a_brightness_without_a_definition_is_refused(value: float) -> None:
    pixels = np.full((8, 16, 3), 0.5, np.float32)
    pixels[3, 3] = value
    data = bytes(imagecodecs.jpegxl_encode(pixels, lossless=True))
    with pytest.raises(ImageFault, match=r"pixels outside 0\.\.1 have no defined brightness"):
        jpeg_xl.decode_jpeg_xl(data, replace(PLAIN, bits=32))


def test_pixels_of_another_size_than_the_header_are_damage() -> None:
    data = bytes(imagecodecs.jpegxl_encode(pictures.rgb_pixels(16, 8), lossless=True))
    with pytest.raises(ImageFault, match="do not have the size of its header") as fault:
        jpeg_xl.decode_jpeg_xl(data, replace(PLAIN, size=(8, 16)))
    assert fault.value.reason == "CORRUPT"
    with pytest.raises(RuntimeError):
        jpeg_xl.decode_jpeg_xl(b"\xff\x0a" + b"\xff" * 100, PLAIN)
