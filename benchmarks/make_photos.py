"""Builds the input of the benchmarks: class folders of JPEGs cut from photographs.

By default, every image is a random crop, at a random scale, resized to about 500x400 pixels (440-560 by
340-460). With `--megapixels 12`, every image is a large crop (or the whole source) resized to 12 megapixels.
This uses only sources with at least as many pixels, because an enlarged picture has too little detail for a
fair test of a decoder. With `--pieces 40x40`, every image is a piece of exactly that size, which is cut out
without resizing, which is fast. With `--copies 10`, ten files hold the same image; that is the fastest way to
make very many files.

Without a folder of photographs, the sources are generated: discs of all sizes that cover each other, with
noise of all sizes. JPEGs of them have about as many bytes as those of photographs.
"""

from __future__ import annotations

import argparse
import io
import math
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}
MIN_SIDE = 900
LONGEST = 2600
CLASSES = 10
QUALITY = 90
#: Generated sources: their number, their width and height, and the discs in each.
GENERATED = 12
GENERATED_SIZE = (3600, 2700)
DISCS = 2500
#: Standard deviation of the finest noise, and how much stronger noise of twice the size is.
NOISE = 0.35
GROWTH = 2**0.8
OCTAVES = 9


class Wanted(NamedTuple):
    """The images to make.

    Attributes:
      folder: Folder for the class folders.
      seed: Seed of the random numbers.
      megapixels: Size of large photographs; None for other kinds.
      piece: Width and height of pieces that are cut out without resizing; None for other kinds.
      classes: Number of class folders.
      copies: Number of files of each image, all in its class folder.
    """

    folder: Path
    seed: int = 0
    megapixels: float | None = None
    piece: tuple[int, int] | None = None
    classes: int = CLASSES
    copies: int = 1


def generate_source(number: int) -> Image.Image:
    """Generates a picture with edges and noise of all sizes, as photographs have.

    Args:
      number: Seed of the picture.

    Returns:
      An RGB picture of 9.7 megapixels.
    """
    width, height = GENERATED_SIZE
    chance, noise_of = random.Random(number), np.random.default_rng(number)
    picture = Image.new("RGB", GENERATED_SIZE)
    draw = ImageDraw.Draw(picture)
    for _ in range(DISCS):
        radius = min(width / 3, 12 * (1 - chance.random()) ** -0.6)
        x, y, squeezed = chance.uniform(0, width), chance.uniform(0, height), chance.uniform(0.5, 1)
        gray = chance.randrange(256)
        color = tuple((3 * gray + chance.randrange(256)) // 4 for _ in range(3))
        draw.ellipse((x - radius, y - radius * squeezed, x + radius, y + radius * squeezed), fill=color)
    noise = np.zeros((height, width), np.float32)
    for octave in range(OCTAVES):
        step = 2**octave
        coarse = noise_of.standard_normal((height // step + 2, width // step + 2), np.float32)
        box = (0, 0, width / step, height / step)
        enlarged = Image.fromarray(coarse).resize(GENERATED_SIZE, Image.Resampling.BICUBIC, box=box)
        noise += np.asarray(enlarged) * np.float32(NOISE * GROWTH**octave)
    pixels = np.asarray(picture, np.float32) + noise[..., None]
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def find_sources(folder: Path, min_pixels: float) -> list[Path]:
    """Lists the photographs that are large enough, in an order that does not depend on the disk.

    Args:
      folder: Folder to search recursively.
      min_pixels: Minimum number of pixels (width x height).

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
      picture: Picture to cut from.
      rng: Random numbers of this image.

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
      picture: Picture to cut from, with at least `pixels` pixels.
      rng: Random numbers of this image.
      pixels: Minimum number of pixels of the result.

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


def cut_piece(picture: Image.Image, rng: random.Random, size: tuple[int, int]) -> Image.Image:
    """Cuts a random piece of a size out of a picture, without resizing it.

    Args:
      picture: Picture to cut from.
      rng: Random numbers of this image.
      size: Width and height of the piece.

    Returns:
      The piece.
    """
    left = rng.randint(0, picture.width - size[0])
    top = rng.randint(0, picture.height - size[1])
    return picture.crop((left, top, left + size[0], top + size[1]))


def cut_source(source: Path | int, numbers: list[int], wanted: Wanted) -> int:
    """Writes all images from one source, so that each source is decoded once.

    Args:
      source: Path of the photograph, or the number of a generated one.
      numbers: Numbers of the images to cut from it.
      wanted: The images to make.

    Returns:
      The number of files written.
    """
    Image.MAX_IMAGE_PIXELS = None
    if isinstance(source, int):
        picture = generate_source(source)
    else:
        with Image.open(source) as opened:
            picture = opened.convert("RGB")
    if wanted.megapixels is None:
        # At full resolution, photographs are soft at the level of pixels; reduced ones give crops with
        # detail.
        picture.thumbnail((LONGEST, LONGEST), Image.Resampling.BICUBIC, reducing_gap=None)
    for number in numbers:
        # The seed is per image, so the order and the number of workers cannot change a picture.
        rng = random.Random(f"{wanted.seed}:{number}")
        if wanted.piece is not None:
            piece = cut_piece(picture, rng, wanted.piece)
        elif wanted.megapixels is None:
            piece = small_crop(picture, rng)
        else:
            piece = large_crop(picture, rng, wanted.megapixels * 1e6)
        encoded = io.BytesIO()
        piece.save(encoded, "JPEG", quality=QUALITY)
        stem = f"class{number % wanted.classes}/img{number:05d}"
        for copy in range(wanted.copies):
            name = f"{stem}-{copy}.jpg" if wanted.copies > 1 else f"{stem}.jpg"
            (wanted.folder / name).write_bytes(encoded.getvalue())
    return len(numbers) * wanted.copies


def make_photos(sources: Sequence[Path | int], count: int, wanted: Wanted) -> int:
    """Writes images, the same number from each source.

    Args:
      sources: Paths of photographs, or numbers of generated ones.
      count: Number of files, with all copies.
      wanted: The images to make; the folder must not exist.

    Returns:
      The number of files written.
    """
    wanted.folder.mkdir(parents=True)
    for label in range(wanted.classes):
        (wanted.folder / f"class{label}").mkdir()
    images = range(count // wanted.copies)
    shares = [list(images[first :: len(sources)]) for first in range(len(sources))]
    with ProcessPoolExecutor() as pool:
        jobs = [
            pool.submit(cut_source, source, share, wanted)
            for source, share in zip(sources, shares, strict=True)
            if share
        ]
        return sum(job.result() for job in jobs)


def _parse_size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    return int(width), int(height)


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("destination", type=Path, help="the folder to write; must not exist")
    parser.add_argument("--source", type=Path, help="a folder of photographs (default: generate them)")
    parser.add_argument("--count", type=int, default=3000, help="how many images")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--classes", type=int, default=CLASSES, help="how many class folders")
    parser.add_argument("--copies", type=int, default=1, help="how many of the files hold the same image")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--megapixels", type=float, help="make photographs of this size instead of 500x400")
    kind.add_argument("--pieces", type=_parse_size, metavar="WxH", help="cut pieces of this size")
    options = parser.parse_args()

    Image.MAX_IMAGE_PIXELS = None
    sources: Sequence[Path | int] = range(GENERATED)
    if options.source:
        sources = find_sources(options.source, (options.megapixels or 0) * 1e6)
    if not sources:
        print("no photograph under the source folder is large enough", file=sys.stderr)
        return 2
    wanted = Wanted(
        options.destination,
        options.seed,
        options.megapixels,
        options.pieces,
        options.classes,
        options.copies,
    )
    try:
        written = make_photos(sources, options.count, wanted)
    except FileExistsError:
        # Leftovers of another run would be part of the measured input.
        print("the destination exists already", file=sys.stderr)
        return 2
    print(f"{written} images from {min(len(sources), options.count)} photographs")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
