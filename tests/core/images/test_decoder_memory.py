"""The memory of decoding is counted before it begins, and no pixel comes from memory that nobody wrote."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers import mutants, oversized, pictures
from PIL import Image

from shardwright.core.images import color, convert
from shardwright.core.images.convert import convert_image
from shardwright.core.images.decode import check_memory, open_image
from shardwright.core.images.formats.jpeg import check_header
from shardwright.core.images.read import read_image
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import ImageRef

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
        data = pictures.file_of(image, "WEBP", lossless=lossless)
        expected, found = Image.open(io.BytesIO(data)), pictures.opened(data)
        assert found.mode == expected.mode
        assert np.array_equal(np.asarray(found), np.asarray(expected))


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


_PROGRAM = Path(mutants.__file__)


def _outcomes(kind: str, fill: int) -> list[str]:
    """Returns the results of mutants if fresh memory is filled with a value (glibc, mallopt(3))."""
    run = subprocess.run(
        [sys.executable, _PROGRAM, kind, "1500"],
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
