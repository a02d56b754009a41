"""Files with too many parts are refused, and the memory of decoding is counted before it begins."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import iso_files, mutants, oversized, pictures
from PIL import Image

from shardwright.core.images import color, convert
from shardwright.core.images.convert import convert_image
from shardwright.core.images.decode import check_memory, open_image
from shardwright.core.images.formats.containers import check_tags
from shardwright.core.images.formats.jpeg import check_header
from shardwright.core.images.read import read_image
from shardwright.schemas.bounds import DEFAULT_BOUNDS, Bounds, format_bounds
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import ImageRef

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

_SQUARE = Image.new("L", (128, 128), 90)


def _with_tags(tags: int, size: int = 8, times: int = 1) -> bytes:
    """Returns a JPEG with Exif data, whose tags share their bytes, in this many segments."""
    body = b"Exif\0\0" + oversized.exif_of_shared_values(tags, size)
    segment = b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body
    plain = oversized.jpeg_of_segments(0)
    return plain[:2] + segment * times + plain[2:]


def _gif_of_pixel_blocks(blocks: int) -> bytes:
    """Returns a GIF whose pixels are in this many blocks of one byte, and a terminator."""
    head = b"GIF89a" + struct.pack("<HHBBB", 4, 4, 0x80, 0, 0) + bytes(6)
    return head + struct.pack("<BHHHHBB", 0x2C, 0, 0, 4, 4, 0, 2) + b"\x01\x00" * blocks + b"\x00;"


def _gif_of_blocks(blocks: int) -> bytes:
    return oversized.gif_of_comments(blocks) if blocks < 100 else _gif_of_pixel_blocks(blocks)


def _gif_of_extension(blocks: int) -> bytes:
    return oversized.gif_of_comment_blocks(blocks).replace(b"!\xfe", b"!\xff")


def _jp2(options: dict[str, Any]) -> bytes:
    return iso_files.jp2_of(_SQUARE, **options)


class Case(NamedTuple):
    """A bound for this test, and two files: one within the bound, and one that exceeds it."""

    field: str
    bound: int
    make: Callable[[Any], bytes]
    below: Any
    above: Any

    @property
    def reason(self) -> str:
        return f"TOO_MANY_{self.field.upper()}"


CASES = {
    "scans": Case("scans", 1, partial(oversized.jpeg_of_scans, side=1024), 1, 50),
    "scans of small pictures": Case("scans", 20, partial(oversized.jpeg_of_scans, 60), 64, 4096),
    "segments": Case("segments", 100, oversized.jpeg_of_segments, 50, 100),
    "fill bytes": Case("stray_bytes", 100, partial(oversized.jpeg_of_segments, 1), 100, 102),
    "exif of webp": Case("tag_values", 100, partial(oversized.with_exif, "WEBP"), 100, 101),
    "exif of png": Case("tag_values", 100, partial(oversized.with_exif, "PNG"), 100, 101),
    "exif of jpeg": Case("tag_values", 100, partial(oversized.with_exif, "JPEG"), 100, 101),
    "values of tiff": Case("tag_values", 100, oversized.tiff_of_strips, 40, 60),
    "strips": Case("strips", 50, oversized.tiff_of_strips, 50, 51),
    "chunks of png": Case("chunks", 103, oversized.png_of_texts, 100, 101),
    "a gif's comment": Case("comment_blocks", 100, oversized.gif_of_comment_blocks, 99, 100),
    "a gif's comments": Case("comment_blocks", 100, oversized.gif_of_comments, 50, 51),
    "commands of bmp": Case("stray_bytes", 1, partial(oversized.run_length_bmp, 8, 8), 8, 200),
    "width of bmp": Case("columns", 100, lambda width: oversized.run_length_bmp(width, 1, 1), 100, 101),
    "pixels of bmp": Case("runs", 2000, lambda width: oversized.run_length_bmp(width, 1, 1), 8, 2001),
    "blocks of a gif": Case("blocks", 100, _gif_of_blocks, 50, 100),
    "extensions of a gif": Case("extension_blocks", 100, _gif_of_extension, 99, 100),
    "tags": Case("tags", 20, _with_tags, 20, 21),
    "bytes that tags share": Case("shared_bytes", 1000, partial(_with_tags, size=2000), 1, 100),
    "segments of exif": Case("exif_segments", 3, partial(_with_tags, 1, 8), 3, 4),
    "header of ppm": Case("comments", 100, oversized.long_ppm_header, 70, 100),
    "boxes": Case("boxes", 20, iso_files.jxl_of_boxes, 20, 21),
    "tiles": Case("tiles", 16, _jp2, {"tile_size": (32, 32)}, {"tile_size": (32, 16)}),
    "code blocks": Case("code_blocks", 1000, _jp2, {"codeblock_size": (64, 64)}, {"codeblock_size": (4, 4)}),
    "packets": Case("packets", 100, _jp2, {}, {"quality_layers": [50, 20, 10, 5, 2]}),
}


def _reason(data: bytes, given: str = "") -> str:
    try:
        pictures.convert(data, "a.png", bounds=given)
    except ImageFault as fault:
        return fault.reason
    return ""


@pytest.mark.parametrize("name", CASES)
def test_a_file_is_refused_above_the_bound_and_accepted_below_or_with_a_higher_one(name: str) -> None:
    case = CASES[name]
    given = format_bounds(Bounds(**{case.field: case.bound}))
    # A BMP whose rows are all empty has no pixels, but is not refused for its runs.
    assert _reason(case.make(case.below), given) in ("", "CORRUPT" if name.endswith("of bmp") else "")
    fault = pictures.fault(case.make(case.above), "a.png", bounds=given)
    assert fault.reason == case.reason
    assert f"raise --bounds {case.reason}={case.bound}" in fault.message
    if not (name.endswith("of bmp") or name == "blocks of a gif"):  # these pictures have no pixels
        assert _reason(case.make(case.above), format_bounds(Bounds(**{case.field: 10**9}))) == ""


def test_every_bound_has_a_code_and_a_case() -> None:
    codes = {code for code in QuarantineReason if code.startswith("TOO_MANY_")}
    assert codes - {"TOO_MANY_PIXELS"} == {f"TOO_MANY_{name.upper()}" for name in Bounds._fields}
    assert codes - {"TOO_MANY_PIXELS"} == {case.reason for case in CASES.values()}


@pytest.mark.parametrize(
    "data, reason",
    [
        (lambda: oversized.jpeg_of_segments(1 << 17), "TOO_MANY_SEGMENTS"),
        (lambda: oversized.with_exif("PNG", (1 << 20) + 1), "TOO_MANY_TAG_VALUES"),
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
    data = bytearray(oversized.exif_of_shared_values(1, 0))
    data[-4:] = data[4:8]  # the directory is followed by itself
    check_tags(bytes(data), "exif", DEFAULT_BOUNDS)


def _ppm(magic: bytes, width: int, height: int, highest: int, body: bytes) -> bytes:
    return b"%s\n# a comment\n%d %d\n%d\n" % (magic, width, height, highest) + body


@pytest.mark.parametrize("highest", [1, 15, 100, 255, 256, 1000, 65535])
@pytest.mark.parametrize("magic", [b"P2", b"P3", b"P5", b"P6"])
def test_pnm_pixels_equal_pillows(magic: bytes, highest: int) -> None:
    bands = 3 if magic in (b"P3", b"P6") else 1
    values = np.random.default_rng(7).integers(0, highest + 1, (5, 7, bands))
    values.flat[:2] = 0, highest
    if magic in (b"P2", b"P3"):
        body = b" ".join(b"%d" % value for value in values.flat).replace(b" ", b" #c\n", 2) + b"\n"
    else:
        body = values.astype(">u2" if highest > 255 else np.uint8).tobytes()
    pictures.assert_as_pillow(_ppm(magic, 7, 5, highest, body))


def test_pixels_of_plain_pbm_equal_pillows() -> None:
    pictures.assert_as_pillow(b"P1 3 2\n1 0#x\n1\n011")


@pytest.mark.parametrize(
    "body, reason",
    [(b"1 2 3", "TRUNCATED"), (b"1 2 3 x", "CORRUPT"), (b"1 2 3 256", "CORRUPT"), (b"1 2 3 -4", "CORRUPT")],
)
def test_damaged_text_is_refused(body: bytes, reason: str) -> None:
    assert _reason(_ppm(b"P2", 2, 2, 255, body)) == reason


SIDE = 64
PIXELS = SIDE * SIDE
RGB = Image.fromarray(pictures.rgb_pixels(SIDE, SIDE))


def _needed(data: bytes, factor: int = 1) -> int:
    opened = open_image(data, "a", 10**6)
    opened.reduce(factor)
    return opened.decoder_bytes()


@pytest.mark.parametrize(
    "subsampling, coefficients", [(0, 2 * 3 * PIXELS), (1, 2 * 2 * PIXELS), (2, 2 * PIXELS * 3 // 2)]
)
def test_coefficients_are_counted_at_full_size(subsampling: int, coefficients: int) -> None:
    data = pictures.file_of(RGB, "JPEG", progressive=True, subsampling=subsampling)
    assert _needed(data) == 4 * PIXELS + coefficients
    assert _needed(data, 8) == 4 * PIXELS // 64 + coefficients
    plain = pictures.file_of(RGB, "JPEG", subsampling=subsampling)
    assert _needed(plain, 8) == 4 * PIXELS // 64
    assert not check_header(plain)
    components = plain.index(b"\xff\xda") + 4
    assert check_header(plain[:components] + b"\1" + plain[components + 1 :])  # the others are in later scans


def test_tiles_and_canvases_are_counted() -> None:
    tiles = _needed(oversized.tiff_of_tiles(SIDE, SIDE, (160, 160)))
    assert tiles >= 4 * PIXELS + 3 * PIXELS + 3 * 160 * 160
    assert _needed(oversized.webp_canvas(SIDE, SIDE)) == 20 * PIXELS
    assert _needed(pictures.file_of(RGB, "WEBP")) == 4 * PIXELS
    assert _needed(pictures.file_of(RGB, "WEBP", lossless=True)) == 8 * PIXELS
    assert _needed(pictures.file_of(RGB, "PNG")) == 4 * PIXELS


@pytest.mark.parametrize(
    "make",
    [
        lambda side: oversized.webp_canvas(side, side),
        lambda side: oversized.tiff_of_tiles(side, side, (4 * side, side)),
        oversized.progressive_jpeg,
    ],
    ids=["canvas", "tile", "coefficients"],
)
def test_files_that_need_far_more_memory_than_their_pixels_are_refused(make: Callable[[int], bytes]) -> None:
    side = 2500
    settings = ConvertSettings(input=("in",), output="out", image_format="png", max_pixels=side * side)
    with pytest.raises(ImageFault) as fault:
        convert_image(make(side), "a", settings)
    assert fault.value.reason == "TOO_MUCH_MEMORY" and "--max_pixels" in fault.value.message
    assert convert_image(make(64), "a", settings).width == 64  # far too little to be refused


def test_a_large_file_may_take_more() -> None:
    """A photograph of 50 megapixels is not a bomb, although its decoder keeps several pictures."""
    limit, picture = 89_478_485, 50_000_000
    avif, animated = 14 * picture, 20 * picture
    for file_bytes in (1_000, 2_000_000):
        with pytest.raises(ImageFault, match="raise --max_pixels"):
            check_memory(avif, limit, file_bytes)
    check_memory(avif, limit, 4_000_000)
    check_memory(animated, limit, 10_000_000)
    with pytest.raises(ImageFault):
        check_memory(21 * limit, limit, 10**9)


@pytest.mark.parametrize("resize", ["", "16", "600x400"])
def test_the_result_is_reserved_together_with_decoding(resize: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pictures.file_of(RGB, "JPEG", progressive=True, subsampling=0)
    reserved: list[int] = []

    @contextlib.contextmanager
    def reserve(size: int) -> Iterator[None]:
        reserved.append(size)
        yield

    settings = ConvertSettings(input=("in",), output="out", resize=resize, image_format="png")
    monkeypatch.setattr(convert, "reserve_working_bytes", reserve)
    convert_image(data, "a", settings)
    width, height = settings.target or (SIDE, SIDE)
    factor = 1 if resize != "16" else 2
    assert reserved == [6 * PIXELS + 4 * PIXELS // factor**2 + 12 * width * height]


def test_alpha_of_a_still_webp_equals_pillows() -> None:
    image = RGB.copy()
    image.putalpha(Image.fromarray(pictures.alpha_pixels(SIDE, SIDE)))
    for lossless in (True, False):
        pictures.assert_as_pillow(pictures.file_of(image, "WEBP", lossless=lossless))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "P", "I;16", "CMYK"])
@pytest.mark.parametrize("wanted", ["rgb", "gray", "keep"])
def test_colors_converted_in_strips_equal_those_of_the_whole(
    mode: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gray16 = Image.fromarray(pictures.gray16_pixels(SIDE, SIDE))
    image = gray16 if mode == "I;16" else RGB.convert(mode)
    if mode in ("RGBA", "LA"):
        image.putalpha(Image.fromarray(pictures.alpha_pixels(SIDE, SIDE)))
    if mode == "P":
        image.info["transparency"] = 3
    whole = color.to_color(image, wanted, pictures.BACKGROUND)
    monkeypatch.setattr(color, "STRIP_PIXELS", 7 * SIDE)
    strips = color.to_color(image, wanted, pictures.BACKGROUND)
    assert strips.mode == whole.mode and strips.info == whole.info
    assert np.array_equal(np.asarray(strips), np.asarray(whole))


def test_a_file_of_unknown_size_is_measured_before_it_is_read(tmp_path: Path) -> None:
    huge = tmp_path / "huge.jpg"
    with huge.open("wb") as file:
        file.truncate(1 << 40)  # a hole: to read it all would take all memory
    with pytest.raises(ImageFault, match=r"are more than 1.0 MB; raise --max_bytes") as caught:
        read_image(ImageRef("huge.jpg", str(huge)), 10**6)
    assert caught.value.reason == "TOO_LARGE"


def _outcomes(kind: str, fill: int) -> list[str]:
    """Returns the results of mutants if fresh memory is filled with a value (glibc, mallopt(3))."""
    run = subprocess.run(
        [sys.executable, "-m", mutants.__name__, kind, "1500"],
        cwd=Path(mutants.__file__).parents[1],
        env={**os.environ, "MALLOC_PERTURB_": str(fill)},
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    return run.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*mutants.TIFF_COMPRESSIONS, *mutants.OTHERS])
def test_runs_with_different_memory_agree_for_every_kind(kind: str) -> None:
    first, second = (_outcomes(kind, fill) for fill in (85, 170))
    assert len(first) == 1500
    assert first == second


@pytest.mark.parametrize("kind", [*mutants.TIFF_COMPRESSIONS, *mutants.OTHERS])
def test_a_sound_file_of_each_kind_decodes(kind: str) -> None:
    assert len(mutants.outcome(mutants.original(kind))) == 16
