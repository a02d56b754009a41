"""Builds the input of the benchmarks: class folders of JPEGs cut from real photographs.

By default, every image is a random crop, at a random scale, resized to about 500x400 pixels (440-560 by
340-460). With `--megapixels 12`, every image is a large crop (or the whole source) resized to 12 megapixels.
This uses only sources with at least as many pixels, because an enlarged picture has too little detail for a
fair test of a decoder.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from PIL import Image

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}
MIN_SIDE = 900
LONGEST = 2600
CLASSES = 10
QUALITY = 90


def find_sources(folder: Path, min_pixels: float) -> list[Path]:
    """Lists the photographs that are large enough, in an order that does not depend on the disk.

    Args:
      folder: folder to search recursively.
      min_pixels: minimum number of pixels (width x height).

    Returns:
      Paths sorted by their path relative to the folder.
    """
    found = []
    for path in folder.rglob("*"):
        if path.suffix.lower() not in SUFFIXES or not path.is_file():
            continue
        with Image.open(path) as picture:
            width, height = picture.size
        if min(width, height) >= MIN_SIDE and width * height >= min_pixels:
            found.append(path)
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def small_crop(picture: Image.Image, rng: random.Random) -> Image.Image:
    """Cuts a random piece of about 500x400 pixels at a random scale.

    Args:
      picture: picture to cut from.
      rng: random numbers of this image.

    Returns:
      The crop.
    """
    width, height = rng.randint(440, 560), rng.randint(340, 460)
    scale = rng.uniform(1.0, min(picture.width / width, picture.height / height, 2.5))
    box_width, box_height = int(width * scale), int(height * scale)
    left = rng.randint(0, picture.width - box_width)
    top = rng.randint(0, picture.height - box_height)
    box = (left, top, left + box_width, top + box_height)
    return picture.resize((width, height), Image.Resampling.BICUBIC, box=box)


def large_crop(picture: Image.Image, rng: random.Random, pixels: float) -> Image.Image:
    """Cuts a large piece, at most the whole picture, and resizes it to a number of pixels.

    Args:
      picture: picture to cut from, with at least `pixels` pixels.
      rng: random numbers of this image.
      pixels: minimum number of pixels of the result.

    Returns:
      The crop, with the aspect ratio of the picture.
    """
    smallest = math.sqrt(pixels / (picture.width * picture.height))
    share = rng.uniform(smallest, 1.0)
    box_width, box_height = picture.width * share, picture.height * share
    left = rng.uniform(0, picture.width - box_width)
    top = rng.uniform(0, picture.height - box_height)
    size = (math.ceil(picture.width * smallest), math.ceil(picture.height * smallest))
    box = (left, top, left + box_width, top + box_height)
    return picture.resize(size, Image.Resampling.BICUBIC, box=box)


def cut_source(
    source: Path, numbers: list[int], destination: Path, seed: int, megapixels: float | None
) -> int:
    """Writes all images from one source, so that each source is decoded once.

    Args:
      source: path of the photograph.
      numbers: numbers of the images to cut from it.
      destination: folder for the class folders.
      seed: seed of the random numbers.
      megapixels: size of large photographs, or None for small ones.

    Returns:
      The number of images written.
    """
    Image.MAX_IMAGE_PIXELS = None
    with Image.open(source) as opened:
        picture = opened.convert("RGB")
    if megapixels is None:
        # At full resolution, photographs are soft at the level of pixels; reduced ones give crops with
        # detail.
        picture.thumbnail((LONGEST, LONGEST), Image.Resampling.BICUBIC, reducing_gap=None)
    for number in numbers:
        # The seed is per image, so the order and the number of workers cannot change a picture.
        rng = random.Random(f"{seed}:{number}")
        if megapixels is None:
            piece = small_crop(picture, rng)
        else:
            piece = large_crop(picture, rng, megapixels * 1e6)
        name = f"class{number % CLASSES}/img{number:05d}.jpg"
        piece.save(destination / name, "JPEG", quality=QUALITY)
    return len(numbers)


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", type=Path, help="a folder of photographs, searched recursively")
    parser.add_argument("destination", type=Path, help="the folder to write; must not exist")
    parser.add_argument("--count", type=int, default=3000, help="how many images")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--megapixels", type=float, help="make photographs of this size instead of 500x400")
    options = parser.parse_args()

    Image.MAX_IMAGE_PIXELS = None
    sources = find_sources(options.source, (options.megapixels or 0) * 1e6)
    if not sources:
        print("no photograph under the source folder is large enough", file=sys.stderr)
        return 2
    try:
        options.destination.mkdir(parents=True)
    except FileExistsError:
        # Leftovers of another run would be part of the measured input.
        print("the destination exists already", file=sys.stderr)
        return 2
    for label in range(CLASSES):
        (options.destination / f"class{label}").mkdir()

    shares = [list(range(first, options.count, len(sources))) for first in range(len(sources))]
    with ProcessPoolExecutor() as pool:
        jobs = [
            pool.submit(cut_source, source, share, options.destination, options.seed, options.megapixels)
            for source, share in zip(sources, shares, strict=True)
            if share
        ]
        written = sum(job.result() for job in jobs)
    print(f"{written} images from {min(len(sources), options.count)} photographs")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
