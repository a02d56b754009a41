"""Files with too many parts are refused with the reason that names the part; files with fewer are decoded."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from helpers import iso_files, oversized, pictures
from PIL import Image

from shardwright.core.images.formats.tiff_tags import check_tags
from shardwright.schemas.bounds import DEFAULT_BOUNDS, Bounds, format_bounds
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import ImageFault

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

_SQUARE = Image.new("L", (128, 128), 90)
#: Name of a bound -> (value for this test, a file within it, a file that exceeds it, the reason).
CASES: dict[str, tuple[dict[str, int], Callable[[], bytes], Callable[[], bytes], QuarantineReason]] = {
    "scans": (
        {"scans": 1},
        lambda: oversized.jpeg_of_scans(1, side=1024),
        lambda: oversized.jpeg_of_scans(50, side=1024),
        QuarantineReason.TOO_MANY_SCANS,
    ),
    "scans of small pictures": (
        {"scans": 20},
        lambda: oversized.jpeg_of_scans(60),
        lambda: oversized.jpeg_of_scans(60, side=4096),
        QuarantineReason.TOO_MANY_SCANS,
    ),
    "segments": (
        {"segments": 100},
        lambda: oversized.jpeg_of_segments(50),
        lambda: oversized.jpeg_of_segments(100),
        QuarantineReason.TOO_MANY_SEGMENTS,
    ),
    "fill bytes": (
        {"stray_bytes": 100},
        lambda: oversized.jpeg_of_segments(1, padding=100),
        lambda: oversized.jpeg_of_segments(1, padding=102),
        QuarantineReason.TOO_MANY_STRAY_BYTES,
    ),
    "exif of webp": (
        {"tag_values": 100},
        lambda: oversized.webp_of_exif(100),
        lambda: oversized.webp_of_exif(101),
        QuarantineReason.TOO_MANY_TAG_VALUES,
    ),
    "exif of png": (
        {"tag_values": 100},
        lambda: oversized.png_of_exif(100),
        lambda: oversized.png_of_exif(101),
        QuarantineReason.TOO_MANY_TAG_VALUES,
    ),
    "exif of jpeg": (
        {"tag_values": 100},
        lambda: oversized.jpeg_of_exif(100),
        lambda: oversized.jpeg_of_exif(101),
        QuarantineReason.TOO_MANY_TAG_VALUES,
    ),
    "values of tiff": (
        {"tag_values": 100},
        lambda: oversized.tiff_of_strips(40),
        lambda: oversized.tiff_of_strips(60),
        QuarantineReason.TOO_MANY_TAG_VALUES,
    ),
    "strips": (
        {"strips": 50},
        lambda: oversized.tiff_of_strips(50),
        lambda: oversized.tiff_of_strips(51),
        QuarantineReason.TOO_MANY_STRIPS,
    ),
    "chunks of png": (
        {"chunks": 103},
        lambda: oversized.png_of_texts(100),
        lambda: oversized.png_of_texts(101),
        QuarantineReason.TOO_MANY_CHUNKS,
    ),
    "a gif's comment": (
        {"comment_blocks": 100},
        lambda: oversized.gif_of_comment_blocks(99),
        lambda: oversized.gif_of_comment_blocks(100),
        QuarantineReason.TOO_MANY_COMMENT_BLOCKS,
    ),
    "a gif's comments": (
        {"comment_blocks": 100},
        lambda: oversized.gif_of_comments(50),
        lambda: oversized.gif_of_comments(51),
        QuarantineReason.TOO_MANY_COMMENT_BLOCKS,
    ),
    "commands of bmp": (
        {"stray_bytes": 1},
        lambda: oversized.run_length_bmp(8, 8, 8),
        lambda: oversized.run_length_bmp(8, 8, 200),
        QuarantineReason.TOO_MANY_STRAY_BYTES,
    ),
    "width of bmp": (
        {"columns": 100},
        lambda: oversized.run_length_bmp(100, 1, 1),
        lambda: oversized.run_length_bmp(101, 1, 1),
        QuarantineReason.TOO_MANY_COLUMNS,
    ),
    "pixels of bmp": (
        {"runs": 2000},
        lambda: oversized.run_length_bmp(8, 1, 1),
        lambda: oversized.run_length_bmp(2001, 1, 1),
        QuarantineReason.TOO_MANY_RUNS,
    ),
    "blocks of a gif": (
        {"blocks": 100},
        lambda: oversized.gif_of_comments(50),
        lambda: _gif_of_pixel_blocks(100),
        QuarantineReason.TOO_MANY_BLOCKS,
    ),
    "extensions of a gif": (
        {"extension_blocks": 100},
        lambda: oversized.gif_of_comment_blocks(99).replace(b"!\xfe", b"!\xff"),
        lambda: oversized.gif_of_comment_blocks(100).replace(b"!\xfe", b"!\xff"),
        QuarantineReason.TOO_MANY_EXTENSION_BLOCKS,
    ),
    "tags": (
        {"tags": 20},
        lambda: oversized.tiff_of_strips(4),
        lambda: _with_exif(oversized.exif_of_shared_values(21, 8)),
        QuarantineReason.TOO_MANY_TAGS,
    ),
    "bytes that tags share": (
        {"shared_bytes": 1000},
        lambda: _with_exif(oversized.exif_of_shared_values(1, 2000)),
        lambda: _with_exif(oversized.exif_of_shared_values(100, 2000)),
        QuarantineReason.TOO_MANY_SHARED_BYTES,
    ),
    "segments of exif": (
        {"exif_segments": 3},
        lambda: _with_exif(oversized.exif_of_shared_values(1, 8), 3),
        lambda: _with_exif(oversized.exif_of_shared_values(1, 8), 4),
        QuarantineReason.TOO_MANY_EXIF_SEGMENTS,
    ),
    "header of ppm": (
        {"comments": 100},
        lambda: oversized.long_ppm_header(70),
        lambda: oversized.long_ppm_header(100),
        QuarantineReason.TOO_MANY_COMMENTS,
    ),
    "boxes": (
        {"boxes": 20},
        lambda: iso_files.jxl_of_boxes(20),
        lambda: iso_files.jxl_of_boxes(21),
        QuarantineReason.TOO_MANY_BOXES,
    ),
    "tiles": (
        {"tiles": 16},
        lambda: iso_files.jp2_of(_SQUARE, tile_size=(32, 32)),
        lambda: iso_files.jp2_of(_SQUARE, tile_size=(32, 16)),
        QuarantineReason.TOO_MANY_TILES,
    ),
    "code blocks": (
        {"code_blocks": 1000},
        lambda: iso_files.jp2_of(_SQUARE, codeblock_size=(64, 64)),
        lambda: iso_files.jp2_of(_SQUARE, codeblock_size=(4, 4)),
        QuarantineReason.TOO_MANY_CODE_BLOCKS,
    ),
    "packets": (
        {"packets": 100},
        lambda: iso_files.jp2_of(_SQUARE),
        lambda: iso_files.jp2_of(_SQUARE, quality_layers=[50, 20, 10, 5, 2]),
        QuarantineReason.TOO_MANY_PACKETS,
    ),
}


def _with_exif(exif: bytes, times: int = 1) -> bytes:
    """Returns a JPEG with Exif data in this many segments."""
    body = b"Exif\0\0" + exif
    segment = b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body
    plain = oversized.jpeg_of_segments(0)
    return plain[:2] + segment * times + plain[2:]


def _gif_of_pixel_blocks(blocks: int) -> bytes:
    """Returns a GIF whose pixels are in this many blocks of one byte, and a terminator."""
    head = b"GIF89a" + struct.pack("<HHBBB", 4, 4, 0x80, 0, 0) + bytes(6)
    return head + struct.pack("<BHHHHBB", 0x2C, 0, 0, 4, 4, 0, 2) + b"\x01\x00" * blocks + b"\x00;"


def _fault(data: bytes, given: str = "") -> ImageFault | None:
    try:
        pictures.convert(data, "a.png", bounds=given)
    except ImageFault as fault:
        return fault
    return None


def _reason(data: bytes, given: str = "") -> str:
    fault = _fault(data, given)
    return fault.reason if fault else ""


@pytest.mark.parametrize("name", CASES)
def test_a_file_is_refused_above_the_bound_and_accepted_below(name: str) -> None:
    values, below, above, reason = CASES[name]
    given = format_bounds(Bounds(**values))
    # A BMP whose rows are all empty has no pixels, but is not refused for its runs.
    assert _reason(below(), given) in ("", "CORRUPT" if name.endswith("of bmp") else "")
    fault = _fault(above(), given)
    assert fault is not None and fault.reason == reason
    assert f"raise --bounds {reason}={getattr(Bounds(**values), reason[9:].lower())}" in fault.message


@pytest.mark.parametrize("name", CASES)
def test_raising_the_bound_in_the_message_accepts_the_image(name: str) -> None:
    values, _, above, reason = CASES[name]
    if name.endswith("of bmp") or name == "blocks of a gif":
        return  # these pictures have no pixels
    raised = format_bounds(Bounds(**{**values, reason[9:].lower(): 10**9}))
    assert _reason(above(), raised) == ""


def test_every_bound_has_a_code_and_a_case() -> None:
    codes = {code for code in QuarantineReason if code.startswith("TOO_MANY_")}
    assert codes - {"TOO_MANY_PIXELS"} == {f"TOO_MANY_{name.upper()}" for name in Bounds._fields}
    assert codes - {"TOO_MANY_PIXELS"} == {reason for _, _, _, reason in CASES.values()}


@pytest.mark.parametrize(
    "data, reason",
    [
        (lambda: oversized.jpeg_of_segments(1 << 17), "TOO_MANY_SEGMENTS"),
        (lambda: oversized.png_of_exif((1 << 20) + 1), "TOO_MANY_TAG_VALUES"),
        (lambda: oversized.gif_of_comment_blocks(1 << 13), "TOO_MANY_COMMENT_BLOCKS"),
        (lambda: oversized.gif_of_zeros(1 << 21), "TOO_MANY_STRAY_BYTES"),
        (lambda: _gif_of_pixel_blocks(1 << 20), "TOO_MANY_BLOCKS"),
        (lambda: oversized.tiff_of_strips((1 << 17) + 1), "TOO_MANY_STRIPS"),
        (lambda: oversized.long_ppm_header(1 << 17), "TOO_MANY_COMMENTS"),
    ],
)
def test_default_bounds_refuse_oversized_files(data: Callable[[], bytes], reason: str) -> None:
    assert _reason(data()) == reason


def test_cyclic_directories_are_read_once() -> None:
    data = bytearray(oversized.exif_of_shared_values(1, 8))
    data[-4:] = data[4:8]  # the directory is followed by itself
    check_tags(bytes(data), "exif", DEFAULT_BOUNDS)


def _ppm(magic: bytes, width: int, height: int, highest: int, body: bytes) -> bytes:
    return b"%s\n# a comment\n%d %d\n%d\n" % (magic, width, height, highest) + body


@pytest.mark.parametrize("highest", [1, 15, 100, 255, 256, 1000, 65535])
@pytest.mark.parametrize("magic", [b"P2", b"P3", b"P5", b"P6"])
def test_pnm_pixels_equal_pillows(magic: bytes, highest: int) -> None:
    import io

    bands = 3 if magic in (b"P3", b"P6") else 1
    values = np.random.default_rng(7).integers(0, highest + 1, (5, 7, bands))
    values.flat[:2] = 0, highest
    if magic in (b"P2", b"P3"):
        body = b" ".join(b"%d" % value for value in values.flat).replace(b" ", b" #c\n", 2) + b"\n"
    else:
        body = values.astype(">u2" if highest > 255 else np.uint8).tobytes()
    data = _ppm(magic, 7, 5, highest, body)
    expected = Image.open(io.BytesIO(data))
    opened = pictures.opened(data)
    assert np.array_equal(np.asarray(opened), np.asarray(expected))


def test_pixels_of_plain_pbm_equal_pillows() -> None:
    import io

    data = b"P1 3 2\n1 0#x\n1\n011"
    assert np.array_equal(np.asarray(pictures.opened(data)), np.asarray(Image.open(io.BytesIO(data))))


@pytest.mark.parametrize(
    "body, reason",
    [(b"1 2 3", "TRUNCATED"), (b"1 2 3 x", "CORRUPT"), (b"1 2 3 256", "CORRUPT"), (b"1 2 3 -4", "CORRUPT")],
)
def test_damaged_text_is_refused(body: bytes, reason: str) -> None:
    assert _reason(_ppm(b"P2", 2, 2, 255, body)) == reason
