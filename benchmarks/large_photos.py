"""Compares a full decode of large photographs with DCT-scaled decoding, in speed and in quality.

A JPEG decoder can skip the high frequencies of each 8x8 block. This gives a picture of half, a quarter or an
eighth of the size for a fraction of the work. The benchmark compares this, followed by a resize to 224x224,
with a full decode and the same resize. It does not encode the pictures.
"""

from __future__ import annotations

import argparse
import io
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from command import Benchmark, Found, run_benchmark
from inputs import photos
from PIL import Image
from quality import psnr
from results import Result, result_of
from rounds import SPEED, SPEED_BY_PROCESSOR, Turn, summarize, take_turns, timed

from shardwright.core.images.convert import convert_image
from shardwright.schemas.configuration.settings import ConvertSettings


@dataclass(frozen=True)
class Settings:
    """Settings of a decoder.

    Attributes:
      size: Target width and height.
      resample: Resampling filter.
    """

    size: tuple[int, int]
    resample: Image.Resampling


def _full(data: bytes, settings: Settings) -> Image.Image:
    with Image.open(io.BytesIO(data), formats=("JPEG",)) as picture:
        return picture.convert("RGB").resize(settings.size, settings.resample)


def _shardwright(data: bytes, settings: Settings) -> Image.Image:
    converted = convert_image(data, "photo.jpg", _convert_settings(settings))
    return Image.frombytes("RGB", settings.size, converted.encoded)


@cache
def _convert_settings(settings: Settings) -> ConvertSettings:
    return ConvertSettings(
        resize="x".join(map(str, settings.size)),
        resample=settings.resample.name.lower(),
        image_format="raw",  # raw pixels, because encoding is not part of the comparison
    )


def measure(options: argparse.Namespace) -> Found:
    """Decodes all images with both decoders in turn."""
    Image.MAX_IMAGE_PIXELS = None
    given = photos(options, options.count, f"--megapixels={options.megapixels}")
    images = [path.read_bytes() for path in sorted(given.folder.glob("*/*.jpg"))]
    results: list[Result] = []

    def way(decode: Callable[[bytes, Settings], Image.Image], settings: Settings) -> Callable[[], Turn]:
        return lambda: timed(lambda: sum(1 for data in images if decode(data, settings)))

    for resample in (Image.Resampling.BILINEAR, Image.Resampling.LANCZOS):
        settings = Settings((options.side, options.side), resample)
        # Judging comes first: it loads the code and the data into the caches for both.
        values = [psnr(_full(data, settings), _shardwright(data, settings)) for data in images]
        whole, ours = (
            f"{resample.name.lower()}: {name}" for name in ("full decode with Pillow", "Shardwright")
        )
        found = take_turns({whole: way(_full, settings), ours: way(_shardwright, settings)}, options.rounds)
        results += summarize(found, {SPEED: "images/s", SPEED_BY_PROCESSOR: "images/s"}, {ours: whole})
        results.append(result_of(ours, "PSNR, mean", "dB", [statistics.mean(values)]))
        results.append(result_of(ours, "PSNR, worst", "dB", [min(values)]))
    return Found(f"{given.text}; to {options.side}x{options.side}, one thread", results)


BENCHMARK = Benchmark(
    "large_photos",
    "Compares a full decode of large photographs with DCT-scaled decoding, in speed and in quality.",
    measure,
    quick={"count": 12, "rounds": 1},
    full={"count": 48, "megapixels": 8, "side": 224, "rounds": 3},
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
