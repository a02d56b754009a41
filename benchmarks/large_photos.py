"""Compares a full decode of large photographs with DCT-scaled decoding, in speed and in quality.

A JPEG decoder can skip the high frequencies of each 8x8 block. This gives a picture of half, a quarter or an
eighth of the size for a fraction of the work. The benchmark compares this, followed by a resize to 224x224,
with a full decode and the same resize. It does not encode the pictures.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from PIL import Image
from quality import psnr

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.transforms.images.convert import convert_image

MIN_PIXELS = 4_000_000


@dataclass(frozen=True)
class Settings:
    """Settings of a decoder.

    Attributes:
      size: target width and height.
      resample: resampling filter.
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


def seconds_for(decode: Callable[[bytes, Settings], Image.Image], data: bytes, settings: Settings) -> float:
    """Times one call.

    Args:
      decode: decoder to time.
      data: JPEG to decode.
      settings: settings of the decoder.

    Returns:
      Seconds.
    """
    start = time.perf_counter()
    decode(data, settings)
    return time.perf_counter() - start


def compare(images: list[bytes], settings: Settings, rounds: int) -> dict[str, float]:
    """Compares the two decoders on all images.

    Args:
      images: JPEGs to decode.
      settings: settings of the decoders.
      rounds: number of measurements per image.

    Returns:
      Images per second of both, their ratio, and the mean and minimum PSNR.
    """
    full, scaled, values = 0.0, 0.0, []
    for data in images:
        # Judge first: this loads the code and the data into the caches for both.
        values.append(psnr(_full(data, settings), _shardwright(data, settings)))
        # Take turns, so that other work on the machine slows both down equally.
        pairs = [
            (seconds_for(_full, data, settings), seconds_for(_shardwright, data, settings))
            for _ in range(rounds)
        ]
        full += statistics.median(pair[0] for pair in pairs)
        scaled += statistics.median(pair[1] for pair in pairs)
    return {
        "full_images_per_second": len(images) / full,
        "scaled_images_per_second": len(images) / scaled,
        "ratio": full / scaled,
        "psnr_mean": statistics.mean(values),
        "psnr_min": min(values),
    }


def load_large(folder: Path) -> list[bytes]:
    """Reads the JPEGs of at least 4 megapixels.

    Args:
      folder: folder to search recursively.

    Returns:
      The bytes of each JPEG.
    """
    images = []
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in {".jpg", ".jpeg"}:
            continue
        with Image.open(path) as picture:
            width, height = picture.size
        if width * height >= MIN_PIXELS:
            images.append(path.read_bytes())
    return images


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--photos", type=Path, required=True, help="searched recursively")
    parser.add_argument("--size", type=int, default=224, help="side of the result in pixels")
    parser.add_argument("--rounds", type=int, default=3, help="timings of each image")
    parser.add_argument("--json", type=Path, help="a file for the results")
    options = parser.parse_args()

    Image.MAX_IMAGE_PIXELS = None
    images = load_large(options.photos)
    if not images:
        print("no JPEG of 4 megapixels or more", file=sys.stderr)
        return 2
    print(f"{len(images)} photographs of at least {MIN_PIXELS / 1e6:.0f} megapixels, one thread\n")
    print("| filter | full, images/s | scaled, images/s | ratio | PSNR mean | PSNR min |")
    print("|---|---:|---:|---:|---:|---:|")
    report = {}
    for resample in (Image.Resampling.BILINEAR, Image.Resampling.LANCZOS):
        settings = Settings((options.size, options.size), resample)
        row = compare(images, settings, options.rounds)
        report[resample.name] = row
        print(
            f"| {resample.name} | {row['full_images_per_second']:.1f} "
            f"| {row['scaled_images_per_second']:.1f} | {row['ratio']:.2f} "
            f"| {row['psnr_mean']:.1f} | {row['psnr_min']:.1f} |",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
