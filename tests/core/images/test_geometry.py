"""Positions of pixels and resampling, compared with Pillow's own ImageOps and a full decode."""

from __future__ import annotations

import hashlib
import io
import math
from contextlib import contextmanager

import cykooz_resizer
import numpy as np
import pytest
from helpers import pictures
from helpers.examples import examples
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from shardwright.core.images import convert, geometry
from shardwright.core.images.convert import convert_image
from shardwright.core.images.geometry import plan_geometry, resize_rows_first
from shardwright.schemas.configuration.settings import CONVERT_SETTINGS, ConvertSettings
from shardwright.schemas.units import FITS

RESAMPLES = CONVERT_SETTINGS["resample"].kind.choices

SIDES = st.integers(1, 90)
LARGE_SIDES = st.integers(1, 20_000)
_IMAGEOPS = {
    "stretch": lambda image, target, method: image.resize(target, method),
    "contain": ImageOps.contain,
    "cover": ImageOps.cover,
    "fit": ImageOps.fit,
    "pad": lambda image, target, method: ImageOps.pad(image, target, method, color="white"),
}


def _pillows(fit: str, image: Image.Image, target: tuple[int, int], resample: str = "box"):
    return _IMAGEOPS[fit](image, target, Image.Resampling[resample.upper()])


@pytest.mark.parametrize("fit", FITS)
@given(width=SIDES, height=SIDES, target=st.tuples(SIDES, SIDES))
@hypothesis_settings(max_examples=examples(60), deadline=None)
def test_sizes_equal_those_of_imageops(fit: str, width: int, height: int, target: tuple[int, int]) -> None:
    canvas = plan_geometry(width, height, target, fit).canvas
    try:
        expected = _pillows(fit, Image.new("L", (width, height)), target).size
    except ValueError:  # ImageOps rounds a thin side to zero pixels
        assert 1 in plan_geometry(width, height, target, fit).size
        return
    if 0 in expected:  # Pillow 13 returns an empty picture instead
        assert 1 in canvas
        return
    assert canvas == expected


@given(
    width=LARGE_SIDES,
    height=LARGE_SIDES,
    target=st.tuples(LARGE_SIDES, LARGE_SIDES),
    fit=st.sampled_from(FITS),
)
@hypothesis_settings(max_examples=examples(300), deadline=None)
def test_boxes_are_inside_and_the_reduction_keeps_twice_the_target(
    width: int, height: int, target: tuple[int, int], fit: str
) -> None:
    geometry = plan_geometry(width, height, target, fit)
    left, upper, right, lower = geometry.box
    assert 0 <= left < right <= width
    assert 0 <= upper < lower <= height
    assert min(geometry.size) >= 1
    assert 0 <= geometry.offset[0] <= geometry.canvas[0] - geometry.size[0]
    assert 0 <= geometry.offset[1] <= geometry.canvas[1] - geometry.size[1]

    def keeps(factor: int) -> bool:
        return (right - left) / factor >= 2 * geometry.size[0] and (
            lower - upper
        ) / factor >= 2 * geometry.size[1]

    factor = geometry.reduction()
    assert factor in (1, 2, 4, 8)
    assert factor == 1 or keeps(factor)
    assert not any(keeps(larger) for larger in (2, 4, 8) if larger > factor)


def test_a_line_that_would_cover_a_box_with_too_many_pixels_is_refused() -> None:
    line = pictures.file_of(Image.new("L", (1, 60)), "PNG")
    options = {"resize": "30", "fit": "cover"}
    fault = pictures.fault(line, max_pixels=1000, **options)
    assert (fault.reason, fault.stage) == ("TOO_MANY_PIXELS", "transform")
    assert "1 x 60 pixels would become 30 x 1800; raise --max_pixels" in fault.message
    assert pictures.convert(line, "a.png", max_pixels=54000, **options).height == 1800
    assert pictures.convert(line, "a.png", max_pixels=60, resize="30", fit="pad").height == 30


@pytest.mark.parametrize("resample", RESAMPLES)
@pytest.mark.parametrize("fit", FITS)
def test_pixels_equal_those_of_imageops(fit: str, resample: str) -> None:
    for size, target in [((61, 40), (19, 24)), ((40, 61), (90, 24)), ((9, 8), (30, 31))]:
        image = Image.fromarray(pictures.rgb_pixels(*size))
        expected = np.asarray(_pillows(fit, image, target, resample))
        shown = pictures.to_png(
            pictures.file_of(image, "PNG"), resize="{}x{}".format(*target), fit=fit, resample=resample
        )
        assert shown.shape == expected.shape
        difference = np.abs(shown.astype(int) - expected)
        if resample in ("bicubic", "lanczos"):
            # The SIMD library resamples rows first, which matters where a kernel overshoots at an edge.
            psnr = 10 * np.log10(255**2 / max((difference.astype(float) ** 2).mean(), 1e-9))
            assert psnr > 42, (size, target, psnr)
        else:
            assert difference.max() <= (resample in ("bilinear", "hamming")), (size, target, difference.max())


@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_padding_has_the_color_of_the_background(color: str) -> None:
    image = Image.fromarray(pictures.rgb_pixels())
    shown = pictures.to_png(
        pictures.file_of(image, "PNG"), resize="40x20", fit="pad", color=color, background="#3366cc"
    )
    expected = Image.new("RGB", (1, 1), "#3366cc").convert("L" if color == "gray" else "RGB")
    assert np.array_equal(shown[5, 0], np.asarray(expected)[0, 0])


def _photo(width: int, height: int) -> np.ndarray:
    """Returns a picture between a photograph and a test chart: gradients, soft blobs, some texture."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    noise = np.random.default_rng(5).normal(0, 4, (height, width)).astype(np.float32)
    red = 128 + 90 * np.sin(x / 47) * np.cos(y / 31) + noise
    green = 255 * x / width + noise
    blue = 60 + 150 * np.exp(-((x - width * 0.2) ** 2 + (y - height * 0.8) ** 2) / 9000) + noise
    pixels = np.stack([red, green, blue], axis=-1)
    pixels[: height // 8, : width // 5] = (255, 30, 0)
    return pixels.clip(0, 255).astype(np.uint8)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("orientation", [1, 3, 6, 8, 2])
def test_reduced_decoding_is_as_good_as_full_decoding(orientation: int) -> None:
    # odd sides, so that the last scaled pixel is covered partly
    data = pictures.file_of(
        Image.fromarray(pictures.stored(_photo(1237, 843), orientation)), "JPEG", orientation, quality=92
    )
    with Image.open(io.BytesIO(data)) as opened:
        full = ImageOps.exif_transpose(opened)
    for fit in FITS:
        target = (150, 120)
        assert plan_geometry(*full.size, target, fit).reduction() > 1
        expected = np.asarray(_pillows(fit, full, target, "bilinear")).astype(float)
        shown = pictures.to_png(data, resize="150x120", fit=fit)
        assert shown.shape == expected.shape
        psnr = 10 * math.log10(255**2 / ((shown - expected) ** 2).mean())
        assert psnr >= 42, fit


@pytest.mark.parametrize("resample", ["bilinear", "bicubic", "lanczos"])
def test_resampling_is_the_same_for_every_instruction_set(
    resample: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = Image.fromarray(_photo(333, 211))
    box = (10.25, 3.5, 320.75, 200.0)
    usual = geometry.resize(image, (96, 61), resample, box)
    plain = cykooz_resizer.Resizer()
    plain.cpu_extensions = cykooz_resizer.CpuExtensions.none
    monkeypatch.setattr(cykooz_resizer, "Resizer", lambda: plain)
    assert np.array_equal(usual, geometry.resize(image, (96, 61), resample, box))


@given(st.floats(0, 50), st.floats(51, 100), st.floats(0, 20), st.floats(21, 40), st.sampled_from(RESAMPLES))
def test_any_box_inside_the_picture_can_be_resampled(
    left: float, right: float, upper: float, lower: float, resample: str
) -> None:
    image = Image.new("L", (100, 40), 77)
    resized = geometry.resize(image, (9, 7), resample, (left, upper, right, lower))
    assert resized.getextrema() == (77, 77)


def noise(width: int, height: int, seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


@pytest.mark.parametrize(
    ("resample", "sha256"),
    [
        ("box", "896c120277b93fc5"),
        ("bilinear", "68e23a5cefe9b541"),
        ("hamming", "e5a8b8dd05fd7a2d"),
        ("bicubic", "1bc656b855716e39"),
        ("lanczos", "562ce8c22484a00a"),
    ],
)
def test_pillow_gives_the_same_pixels_in_every_version(resample: str, sha256: str) -> None:
    picture, digest = noise(301, 199, 0), hashlib.sha256()
    for size in ((112, 4), (97, 61), (400, 300), (301, 50)):
        for box in ((0, 0, 301, 199), (0, 0, 85, 14), (3.5, 5, 250, 160)):
            digest.update(resize_rows_first(picture, size, resample, box).tobytes())
    assert digest.hexdigest()[:16] == sha256


def test_the_memory_is_freed_before_the_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for the reservation must not begin while the picture before still exists."""
    import gc

    left: list[int] = []

    @contextmanager
    def reserve(_: int):
        yield
        left.append(
            sum(isinstance(item, Image.Image) and item.size == (113, 127) for item in gc.get_objects())
        )

    monkeypatch.setattr(convert, "reserve_working_bytes", reserve)
    data = pictures.file_of(noise(61, 47, 1), "JPEG")
    image = convert_image(data, "a.jpg", ConvertSettings(resize="113x127"))
    assert left == [0]
    assert (image.width, image.height, image.channels) == (113, 127, 3)
