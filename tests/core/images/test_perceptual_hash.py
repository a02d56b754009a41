"""Perceptual hashes are close for the same picture in another form, and far apart for different pictures."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from shardwright.core.images.near_duplicates import (
    MAX_HAMMING_DISTANCE,
    bits_apart,
    patches_agree,
)
from shardwright.core.images.quality_metrics import measure_quality


def prints(images: list[Image.Image]) -> tuple[np.ndarray, np.ndarray]:
    """Returns hashes and patches, as rows."""
    looks = [measure_quality(image) for image in images]
    return tuple(
        np.frombuffer(b"".join(rows), np.uint8).reshape(len(images), -1)
        for rows in ([one.hash for one in looks], [one.patch for one in looks])
    )  # type: ignore[return-value]


def alike(left: list[Image.Image], right: list[Image.Image]) -> np.ndarray:
    """Returns which pairs count as the same."""
    (hashes, patches), (others, their_patches) = prints(left), prints(right)
    return (bits_apart(hashes, others) <= MAX_HAMMING_DISTANCE) & patches_agree(patches, their_patches)


def stored(image: Image.Image, kind: str, **options: int) -> Image.Image:
    data = io.BytesIO()
    image.save(data, kind, **options)
    return Image.open(io.BytesIO(data.getvalue())).convert("RGB")


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


def smooth_pictures() -> list[Image.Image]:
    """Returns wallpapers: gradients from one color to another."""
    gradient = Image.linear_gradient("L")
    turned = [gradient, gradient.rotate(90), Image.radial_gradient("L")]
    colors = [("#203040", "#304860"), ("#e0d0c0", "#f0f0e8"), ("#400000", "#b02020")]
    return [ImageOps.colorize(shape, *pair).resize((480, 270)) for shape in turned for pair in colors]


def test_smooth_pictures_are_alike_in_every_form() -> None:
    smooth = smooth_pictures()
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
