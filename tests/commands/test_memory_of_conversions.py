"""Files that make decoders allocate gigabytes take less than 700 MB, photographs less than 600 MB."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from helpers import oversized
from helpers.memory import measured_command
from helpers.pictures import file_of
from helpers.repository import PHOTOS
from helpers.trees import put_files
from PIL import Image

pytestmark = pytest.mark.slow

MAX_MEGABYTES = 700
MAX_MEGABYTES_OF_PHOTOGRAPHS = 600


def _photograph(megapixels: float, seed: int) -> bytes:
    """Returns a JPEG of an example, enlarged, with noise like that of a camera's sensor."""
    photos = sorted(PHOTOS.glob("*/*.jpg"))
    width, height = round((megapixels * 1.5e6) ** 0.5), round((megapixels / 1.5e-6) ** 0.5)
    with Image.open(photos[seed % len(photos)]) as photo:
        pixels = np.asarray(photo.convert("RGB").resize((width, height)), np.int16)
    noise = np.random.default_rng(seed).integers(-14, 15, (height, width, 1), np.int16)
    return file_of(Image.fromarray(np.clip(pixels + noise, 0, 255).astype(np.uint8)), "JPEG", quality=90)


def _peak_of(tmp_path: Path, files: Iterable[bytes], *more: str) -> float:
    """Converts files; returns the command's peak memory in MB."""
    photos = {f"{'ab'[number % 2]}/{number}.jpg": data for number, data in enumerate(files)}
    measured = measured_command("convert", put_files(tmp_path / "in", photos), tmp_path / "out", *more)
    assert measured.code in (0, 1), measured.output
    return measured.megabytes


@pytest.mark.parametrize(
    "make, copies",
    [
        (lambda: oversized.progressive_jpeg(9200), 20),
        (lambda: oversized.progressive_jpeg(8000), 4),
        (lambda: oversized.tiff_of_tiles(9400, 9400, (9408, 9408)), 24),
        (lambda: oversized.tiff_of_tiles(6500, 6500, (512, 512)), 6),
        (lambda: oversized.webp_canvas(9400, 9400), 12),
        (lambda: oversized.webp_canvas(4500, 4500), 4),
    ],
    ids=["coefficients", "fewer coefficients", "tile", "tiles", "canvas", "smaller canvas"],
)
def test_memory_stays_below_its_limit(tmp_path: Path, make: Callable[[], bytes], copies: int) -> None:
    assert _peak_of(tmp_path, [make()] * copies, "--resize=224") < MAX_MEGABYTES


@pytest.mark.parametrize("more", [(), ("--resize=6000x6000",)], ids=["as they are", "enlarged"])
def test_memory_for_photographs_stays_below_its_limit(tmp_path: Path, more: tuple[str, ...]) -> None:
    files = (_photograph(megapixels, seed) for seed, megapixels in enumerate((1, 20, 4, 19, 8, 16, 12, 18)))
    assert _peak_of(tmp_path, files, *more) < MAX_MEGABYTES_OF_PHOTOGRAPHS
