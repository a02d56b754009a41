"""Resampling gives the same pixels with every version, and memory is freed before others may use it."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager

import numpy as np
import pytest
from helpers.pictures import file_of
from PIL import Image

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.transforms.images.convert import convert_image
from shardwright.transforms.images.rows_first import resize_rows_first


def noise(width: int, height: int, seed: int, mode: str = "RGB") -> Image.Image:
    shape = (height, width, 3) if mode == "RGB" else (height, width)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


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

    image = convert_image(
        file_of(noise(61, 47, 1), "JPEG"), "a.jpg", ConvertSettings(resize="113x127"), reserve
    )
    assert left == [0]
    assert (image.width, image.height, image.channels) == (113, 127, 3)
