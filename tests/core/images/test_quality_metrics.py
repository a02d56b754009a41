"""Measurements of pictures follow their formulas, and hashes are close for forms of one picture."""

from __future__ import annotations

import io
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import pictures as files
from helpers.examples import examples
from helpers.memory import traced_memory
from hypothesis import given, settings
from hypothesis.extra import numpy as arrays
from PIL import Image, ImageEnhance, ImageFilter, ImageOps, ImageStat

from shardwright.core.images import quality_metrics as module
from shardwright.core.images.near_duplicates import (
    MAX_HAMMING_DISTANCE,
    bits_apart,
    patches_agree,
)
from shardwright.core.images.quality_metrics import describe_issue, measure_quality, sum_samples
from shardwright.schemas.codes import QUALITY, FindingCode
from shardwright.schemas.pictures import SCORES, ImageQuality
from shardwright.schemas.sketches import FLOAT32_BITS

MODES = (
    *("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX"),
    *("CMYK", "YCbCr", "HSV", "LAB", "I", "F", "I;16", "I;16B"),
)
SIZES = ((1, 1), (2, 1), (20_000, 1), (1, 20_000), (65, 63), (64, 64), (31, 200))


def noise(mode: str, width: int, height: int, seed: int = 0) -> Image.Image:
    """Returns a picture of random pixels."""
    channels = {"RGB": 3, "RGBA": 4, "LA": 2}.get(mode, 1)
    values = np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)
    return Image.fromarray(values.squeeze(2) if channels == 1 else values)


def score(looks: ImageQuality, name: str) -> float:
    return looks.scores[SCORES.index(name)]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_and_shape_is_measured(mode: str) -> None:
    for size in SIZES:
        looks = measure_quality(Image.new(mode, size))
        assert looks.pixels == size[0] * size[1]
        assert (len(looks.digest), len(looks.hash), len(looks.patch)) == (16, 32, 288)
        assert len(looks.scores) == len(SCORES) and all(map(math.isfinite, looks.scores))
        assert ("ODD_ASPECT_RATIO" in looks.issues) == (min(size) / max(size) < 0.35)
        for issue in looks.issues:
            assert FindingCode(issue) in QUALITY and describe_issue(issue, looks.scores)


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
@pytest.mark.parametrize("strip", [1 << 20, 700])
def test_scores_match_the_formulas(mode: str, strip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STRIP_PIXELS", strip)
    for seed in range(5):
        image = noise(mode, 131 - 20 * seed, 77, seed)
        looks = measure_quality(image)
        values = np.asarray(image).reshape(-1, len(image.getbands())).astype(float)
        assert looks.sums == tuple(values.sum(0)) and looks.squares == tuple((values**2).sum(0))
        red, green, blue = values[:, :3].T if values.shape[1] > 2 else values[:, :1].repeat(3, 1).T
        bright = np.sqrt(0.241 * red**2 + 0.691 * green**2 + 0.068 * blue**2) / 255
        fifth, ninety_ninth = np.percentile(bright, [5, 99])
        assert score(looks, "brightness_5") == pytest.approx(fifth, abs=1e-3)
        assert score(looks, "brightness_99") == pytest.approx(ninety_ninth, abs=1e-4)
        assert score(looks, "information") == pytest.approx(min(1, 0.1 * image.entropy()))
        means = ImageStat.Stat(image).mean
        red, green, blue = means[:3] if len(means) > 2 else means[:1] * 3
        mean = math.sqrt(0.241 * red**2 + 0.691 * green**2 + 0.068 * blue**2) / 255
        assert score(looks, "brightness") == pytest.approx(mean)


def test_sharpness_matches_the_formula(photos: Path) -> None:
    for path in sorted(photos.glob("*/*.jpg")):
        image = Image.open(path).convert("RGB")
        ratio = max(image.size) / 64
        small = image.resize(
            (int(image.width // ratio), int(image.height // ratio)) if ratio > 1 else image.size
        )
        gray = small.convert("L")
        sharp = 1 - math.exp(-0.01 * math.sqrt(ImageStat.Stat(gray.filter(ImageFilter.FIND_EDGES)).var[0]))
        spread = 1 - math.exp(-0.01 * float(np.std(gray.histogram())))
        expected = min(1, sharp + (spread if spread > 0.18 else 0))
        assert score(measure_quality(image), "sharpness") == pytest.approx(expected, abs=0.01)


def test_a_picture_is_gray_if_its_channels_are_equal() -> None:
    gray = noise("L", 40, 30)
    for image in (gray, gray.convert("RGB"), gray.convert("RGBA"), gray.convert("LA")):
        assert "GRAYSCALE" in measure_quality(image).issues
    swapped = np.asarray(gray.convert("RGB")).copy()
    swapped[:2, 0, 0] = swapped[1::-1, 0, 0]  # the histograms of all channels stay equal
    assert swapped[0, 0, 0] != swapped[0, 0, 1]
    assert "GRAYSCALE" not in measure_quality(Image.fromarray(swapped)).issues


def test_odd_pictures_are_reported() -> None:
    assert set(measure_quality(Image.new("RGB", (50, 50), (60, 0, 0))).issues) == {"DARK", "LOW_INFORMATION"}
    white = measure_quality(Image.new("L", (50, 50), 255))
    assert set(white.issues) == {"LIGHT", "LOW_INFORMATION", "GRAYSCALE"}
    plain = measure_quality(Image.new("RGB", (16, 16), (90, 60, 60)))
    assert set(plain.issues) == {"BLURRY", "DARK", "LOW_INFORMATION"}
    assert measure_quality(noise("RGB", 90, 60)).issues == ()


def test_the_thresholds_are_strict() -> None:
    exact = Image.new("L", (100, 35), 128)
    assert "ODD_ASPECT_RATIO" not in measure_quality(exact).issues
    assert "ODD_ASPECT_RATIO" in measure_quality(exact.resize((101, 35))).issues


def test_equal_digests_mean_equal_pixels() -> None:
    image = noise("RGB", 20, 10)
    digest = measure_quality(image).digest
    assert measure_quality(image.copy()).digest == digest
    changed = image.copy()
    changed.putpixel((19, 9), (1, 2, 3))
    others = [changed, image.convert("RGBA"), Image.frombytes("RGB", (10, 20), image.tobytes())]
    assert len({digest, *(measure_quality(other).digest for other in others)}) == 4
    indices = noise("L", 20, 10)
    painted = []
    for tint in (1, 2):
        palette = indices.copy().convert("P")
        palette.putpalette([tint * value // 2 for value in range(256) for _ in range(3)])
        painted.append(measure_quality(palette).digest)
    assert painted[0] != painted[1]


def test_sixteen_bits_are_scaled_and_palettes_expanded() -> None:
    deep = Image.fromarray(np.full((8, 8), 32768, np.uint16))
    assert measure_quality(deep).sums == (64 * 128,)
    palette = Image.new("P", (4, 4), 7)
    palette.putpalette([0] * 21 + [250, 100, 50])
    assert measure_quality(palette).sums == (4000, 1600, 800)


def test_transparent_pictures_are_hashed_on_white() -> None:
    image = noise("RGB", 64, 64).filter(ImageFilter.GaussianBlur(6))
    image.putalpha(Image.linear_gradient("L").resize((64, 64)))
    laid = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    assert measure_quality(image).patch == measure_quality(laid).patch


def test_white_on_transparent_is_measured() -> None:
    drawings = []
    for box in ((0, 0, 20, 64), (30, 30, 60, 60)):
        drawing = Image.new("RGBA", (64, 64), (255, 255, 255, 0))
        drawing.paste("white", box)
        drawings.append(measure_quality(drawing))
    first, second = drawings
    assert first.patch != second.patch and first.hash != second.hash
    page = Image.new("RGBA", (64, 64), "white")
    assert measure_quality(page).patch == measure_quality(page.convert("RGB")).patch


@pytest.mark.sampled(1)
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "I;16"])
def test_memory_is_bounded(mode: str) -> None:
    image = Image.new(mode, (6000, 4000))
    with traced_memory() as peak:
        measure_quality(image)
        assert peak() < 48_000_000  # one byte per pixel is 24,000,000


_SHAPES = arrays.array_shapes(min_dims=3, max_dims=3, max_side=6)


@settings(max_examples=examples(60), deadline=None)
@given(arrays.arrays(np.float32, _SHAPES))
def test_sums_of_floats_are_exact(pixels: np.ndarray[Any, Any]) -> None:
    found = sum_samples(pixels)
    assert found.dtype == "float32"
    for number, channel in enumerate(found.channels):
        values = pixels[:, :, number].ravel()
        exact = [Fraction(float(value)) for value in values[np.isfinite(values)]]
        assert channel.finite == len(exact)
        assert channel.total == sum(exact) * 2**FLOAT32_BITS
        assert channel.squares == sum(value**2 for value in exact) * 2 ** (2 * FLOAT32_BITS)
        assert (channel.low, channel.high) == ((min(exact), max(exact)) if exact else (0, 0))
        assert channel.nan == np.isnan(values).sum()
        assert channel.infinite == np.isinf(values).sum()


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_sums_of_integers_are_exact(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 50)  # several parts
    limit = np.iinfo(dtype).max
    pixels = np.random.default_rng(1).integers(limit - 9, limit, (20, 30, 5), dtype, endpoint=True)
    for number, channel in enumerate(sum_samples(pixels).channels):
        values = [int(value) for value in pixels[:, :, number].ravel()]
        squares = sum(value**2 for value in values)
        assert channel == (600, sum(values), squares, min(values), max(values), 0, 0)


def test_zero_has_no_sign() -> None:
    (channel,) = sum_samples(np.full((2, 2, 1), -0.0, np.float32)).channels
    assert str(channel.low) == str(channel.high) == "0.0"


def alike(left: list[Image.Image], right: list[Image.Image]) -> np.ndarray:
    """Returns which pairs count as the same."""
    both = [[measure_quality(image) for image in images] for images in (left, right)]
    hashes = (np.array([[*one.hash] for one in looks], np.uint8) for looks in both)
    patches = (np.array([[*one.patch] for one in looks], np.uint8) for looks in both)
    return (bits_apart(*hashes) <= MAX_HAMMING_DISTANCE) & patches_agree(*patches)


def stored(image: Image.Image, kind: str, **options: int) -> Image.Image:
    return Image.open(io.BytesIO(files.file_of(image, kind, **options))).convert("RGB")


@pytest.fixture(scope="module")
def pictures(photos: Path) -> list[Image.Image]:
    return [Image.open(path).convert("RGB") for path in sorted(photos.glob("*/*.jpg"))[::2]]


@pytest.mark.parametrize("quality", [30, 60, 95])
def test_recompressed_pictures_are_alike(pictures: list[Image.Image], quality: int) -> None:
    assert alike(pictures, [stored(image, "JPEG", quality=quality) for image in pictures]).all()
    assert alike(pictures, [stored(image, "WEBP", quality=quality) for image in pictures]).all()


@pytest.mark.parametrize("size", [(224, 224), (150, 100), (900, 800)])
def test_resized_pictures_are_alike(pictures: list[Image.Image], size: tuple[int, int]) -> None:
    assert alike(pictures, [image.resize(size) for image in pictures]).all()


def test_slightly_brighter_and_darker_pictures_are_alike(pictures: list[Image.Image]) -> None:
    for factor in (0.95, 1.05):
        changed = [ImageEnhance.Brightness(image).enhance(factor) for image in pictures]
        assert alike(pictures, changed).mean() > 0.9


def test_flipped_and_other_pictures_are_not_alike(pictures: list[Image.Image]) -> None:
    assert not alike(pictures, [ImageOps.mirror(image) for image in pictures]).any()
    assert not alike(pictures, pictures[1:] + pictures[:1]).any()


def test_the_same_shape_in_another_color_is_another_picture(pictures: list[Image.Image]) -> None:
    shape = pictures[0].convert("L")
    red, blue = (ImageOps.colorize(shape, color, "white") for color in ("#c02020", "#2020c0"))
    assert not alike([red], [blue]).any() and alike([red], [red.resize((99, 99))]).all()


def test_a_patch_of_the_same_garment_with_another_badge_is_another_picture(
    pictures: list[Image.Image],
) -> None:
    changed = []
    for image in pictures:
        other = image.copy()
        width, height = image.size
        badge = (width * 3 // 8, height * 3 // 8, width * 5 // 8, height * 5 // 8)
        other.paste(ImageOps.invert(image.crop(badge)), badge)
        changed.append(other)
    assert alike(pictures, changed).mean() < 0.1


def test_smooth_pictures_are_alike_in_every_form() -> None:
    # Wallpapers: gradients from one color to another.
    gradient = Image.linear_gradient("L")
    turned = [gradient, gradient.rotate(90), Image.radial_gradient("L")]
    colors = [("#203040", "#304860"), ("#e0d0c0", "#f0f0e8"), ("#400000", "#b02020")]
    smooth = [ImageOps.colorize(shape, *pair).resize((480, 270)) for shape in turned for pair in colors]
    for changed in (
        [stored(image, "JPEG", quality=30) for image in smooth],
        [stored(image.resize((224, 224)), "WEBP", quality=60) for image in smooth],
        [ImageEnhance.Brightness(image).enhance(0.95) for image in smooth],
    ):
        assert alike(smooth, changed).all()
    for other in range(1, len(smooth)):
        assert not alike(smooth, smooth[other:] + smooth[:other]).any()


def test_flat_pictures_differ_by_color_brightness_and_marks() -> None:
    flat = [Image.new("RGB", (200, 200), color) for color in ("white", "black", "red", "#808080")]
    marked = [image.copy() for image in flat]
    for image in marked:
        image.paste("#c0c060", (20, 20, 40, 32))
    assert alike(flat, [stored(image, "JPEG", quality=30) for image in flat]).all()
    assert not alike(flat, flat[1:] + flat[:1]).any() and not alike(flat, marked).any()
