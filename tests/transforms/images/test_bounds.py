"""Files with too many parts are refused with the reason that names the part; those below decode."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import oversized
import pictures
import pytest
from PIL import Image

from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import ImageFault
from shardwright.transforms.images import bounds

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

#: Name of a bound -> (the value for this test, a file below it, a file above it, the reason).
CASES: dict[str, tuple[dict[str, int], Callable[[], bytes], Callable[[], bytes], QuarantineReason]] = {
    "scans": (
        {"MAX_SCANS": 20, "MAX_SCAN_PIXELS": 30 * 64 * 64},
        lambda: oversized.jpeg_of_scans(20),
        lambda: oversized.jpeg_of_scans(30),
        QuarantineReason.TOO_MANY_SCANS,
    ),
    "scans of small pictures": (
        {"MAX_SCANS": 20},
        lambda: oversized.jpeg_of_scans(60),
        lambda: oversized.jpeg_of_scans(bounds.MAX_SCAN_PIXELS // 4000**2, side=4096),
        QuarantineReason.TOO_MANY_SCANS,
    ),
    "segments": (
        {"MAX_JPEG_SEGMENTS": 100},
        lambda: oversized.jpeg_of_segments(50),
        lambda: oversized.jpeg_of_segments(100),
        QuarantineReason.TOO_MANY_SEGMENTS,
    ),
    "fill bytes": (
        {"MAX_STRAY_BYTES": 100},
        lambda: oversized.jpeg_of_segments(1, padding=100),
        lambda: oversized.jpeg_of_segments(1, padding=102),
        QuarantineReason.TOO_MANY_SEGMENTS,
    ),
    "exif of webp": (
        {"MAX_TAG_VALUES": 100},
        lambda: oversized.webp_of_exif(100),
        lambda: oversized.webp_of_exif(101),
        QuarantineReason.TOO_MANY_TAG_VALUES,
    ),
    "exif of png": (
        {"MAX_TAG_VALUES": 100},
        lambda: oversized.png_of_exif(100),
        lambda: oversized.png_of_exif(101),
        QuarantineReason.TOO_MANY_TAG_VALUES,
    ),
    "exif of jpeg": (
        {"MAX_TAG_VALUES": 100},
        lambda: oversized.jpeg_of_exif(100),
        lambda: oversized.jpeg_of_exif(101),
        QuarantineReason.TOO_MANY_TAG_VALUES,
    ),
    "values of tiff": (
        {"MAX_TAG_VALUES": 100},
        lambda: oversized.tiff_of_strips(40),
        lambda: oversized.tiff_of_strips(60),
        QuarantineReason.TOO_MANY_TAG_VALUES,
    ),
    "strips": (
        {"MAX_STRIPS": 50},
        lambda: oversized.tiff_of_strips(50),
        lambda: oversized.tiff_of_strips(51),
        QuarantineReason.TOO_MANY_STRIPS,
    ),
    "chunks of png": (
        {"MAX_CHUNKS": 103},
        lambda: oversized.png_of_texts(100),
        lambda: oversized.png_of_texts(101),
        QuarantineReason.TOO_MANY_CHUNKS,
    ),
    "a gif's comment": (
        {"MAX_COMMENT_BLOCKS": 100},
        lambda: oversized.gif_of_comment_blocks(99),
        lambda: oversized.gif_of_comment_blocks(100),
        QuarantineReason.TOO_MANY_BLOCKS,
    ),
    "a gif's comments": (
        {"MAX_COMMENT_BLOCKS": 100},
        lambda: oversized.gif_of_comments(50),
        lambda: oversized.gif_of_comments(51),
        QuarantineReason.TOO_MANY_BLOCKS,
    ),
    "commands of bmp": (
        {"MAX_STRAY_BYTES": 0},
        lambda: oversized.run_length_bmp(8, 8, 8),
        lambda: oversized.run_length_bmp(8, 8, 200),
        QuarantineReason.TOO_MANY_RUNS,
    ),
    "width of bmp": (
        {"MAX_RUN_LENGTH_WIDTH": 100},
        lambda: oversized.run_length_bmp(100, 1, 1),
        lambda: oversized.run_length_bmp(101, 1, 1),
        QuarantineReason.TOO_MANY_RUNS,
    ),
    "header of ppm": (
        {"MAX_PNM_HEADER": 100},
        lambda: oversized.long_ppm_header(70),
        lambda: oversized.long_ppm_header(100),
        QuarantineReason.TOO_MANY_COMMENTS,
    ),
}


def _reason(data: bytes) -> str:
    try:
        pictures.convert(data, "a.png")
    except ImageFault as fault:
        return fault.reason
    return ""


@pytest.mark.parametrize("name", CASES)
def test_a_file_is_refused_above_the_bound_and_taken_below(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, below, above, reason = CASES[name]
    for constant, value in values.items():
        monkeypatch.setattr(bounds, constant, value)
    data = below()
    # A BMP whose rows are all empty lacks its pixels, but is not refused for its runs.
    assert _reason(data) in ("", "CORRUPT" if name.endswith("of bmp") else "")
    assert _reason(above()) == reason


@pytest.mark.parametrize(
    "data, reason",
    [
        (lambda: oversized.jpeg_of_segments(1 << 17), "TOO_MANY_SEGMENTS"),
        (lambda: oversized.png_of_exif((1 << 20) + 1), "TOO_MANY_TAG_VALUES"),
        (lambda: oversized.gif_of_comment_blocks(1 << 13), "TOO_MANY_BLOCKS"),
        (lambda: oversized.gif_of_zeros(1 << 21), "TOO_MANY_BLOCKS"),
        (lambda: oversized.tiff_of_strips((1 << 17) + 1), "TOO_MANY_STRIPS"),
        (lambda: oversized.long_ppm_header(1 << 17), "TOO_MANY_COMMENTS"),
    ],
)
def test_the_bounds_as_they_are(data: Callable[[], bytes], reason: str) -> None:
    assert _reason(data()) == reason


def test_tags_that_share_their_bytes_count_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_SHARED_BYTES", 1000)
    few, many = (oversized.exif_of_shared_values(tags, 2000) for tags in (1, 100))
    bounds.check_tags(few, "exif")
    with pytest.raises(ImageFault) as fault:
        bounds.check_tags(many, "exif")
    assert fault.value.reason == "TOO_MANY_TAG_VALUES"


def test_directories_that_name_each_other_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(oversized.exif_of_shared_values(1, 8))
    data[-4:] = data[4:8]  # what follows the directory is the directory
    bounds.check_tags(bytes(data), "exif")


def _ppm(magic: bytes, width: int, height: int, highest: int, body: bytes) -> bytes:
    return b"%s\n# a comment\n%d %d\n%d\n" % (magic, width, height, highest) + body


@pytest.mark.parametrize("highest", [1, 15, 100, 255, 256, 1000, 65535])
@pytest.mark.parametrize("magic", [b"P2", b"P3", b"P5", b"P6"])
def test_pnm_decodes_to_pillows_pixels(magic: bytes, highest: int) -> None:
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


def test_plain_bits_decode_to_pillows_pixels() -> None:
    import io

    data = b"P1 3 2\n1 0#x\n1\n011"
    assert np.array_equal(np.asarray(pictures.opened(data)), np.asarray(Image.open(io.BytesIO(data))))


def test_text_in_many_blocks_reads_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from shardwright.transforms.images import pnm

    body = b" ".join(b"%d" % (value % 256) for value in range(300)).replace(b"7 ", b"7 # 1 2 3\n4 #\r")
    body = body.replace(b"4 #\r", b"")
    data = _ppm(b"P2", 15, 20, 255, body)
    whole = np.asarray(pictures.opened(data))
    for size in (1, 2, 3, 5, 17):
        monkeypatch.setattr(pnm, "_BLOCK_BYTES", size)
        assert np.array_equal(np.asarray(pictures.opened(data)), whole)


@pytest.mark.parametrize(
    "body, reason",
    [(b"1 2 3", "TRUNCATED"), (b"1 2 3 x", "CORRUPT"), (b"1 2 3 256", "CORRUPT"), (b"1 2 3 -4", "CORRUPT")],
)
def test_damaged_text_is_refused(body: bytes, reason: str) -> None:
    assert _reason(_ppm(b"P2", 2, 2, 255, body)) == reason
