"""Damaged copies of images, reproducible by seed; run as a program, it prints the result of each.

    python -m helpers.mutants KIND COUNT

prints a line for each mutant: a digest of its pixels, or why it was refused. Two runs with different values
of glibc's MALLOC_PERTURB_ differ if unwritten memory was published as pixels.
"""

from __future__ import annotations

import hashlib
import random
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
from PIL import Image

from helpers import iso_files
from helpers.pictures import file_of
from shardwright.core.images.decode import load_checked, open_image
from shardwright.schemas.errors import ImageFault, NotACandidate

TIFF_COMPRESSIONS = (
    "raw", "tiff_ccitt", "group3", "group4", "tiff_lzw", "jpeg", "tiff_adobe_deflate", "packbits", "zstd",
    "lzma",
)  # fmt: skip
_HEIF = ("HEIF",) if find_spec("pillow_heif") else ()
OTHERS = ("JPEG", "PROGRESSIVE", "PNG", "GIF", "WEBP", "BMP", "PPM", "AVIF", "JPEG2000", "JXL", *_HEIF)
_FAX = ("tiff_ccitt", "group3", "group4")
_MAX_PIXELS = 1 << 22


def picture(width: int = 160, height: int = 120) -> Image.Image:
    """Returns a picture with edges, gradients and noise."""
    rng = np.random.default_rng(7)
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([x * 255 // width, y * 255 // height, (x ^ y) & 255], axis=-1)
    return Image.fromarray((pixels + rng.integers(0, 30, pixels.shape)).clip(0, 255).astype(np.uint8))


def original(kind: str) -> bytes:
    """Returns a sound file of a kind: a compression of TIFF, or a format."""
    image = picture()
    if kind in TIFF_COMPRESSIONS:
        image = image.convert("1") if kind in _FAX else image
        return file_of(image, "TIFF", compression=kind, tiffinfo={278: 32})
    if kind == "PROGRESSIVE":
        return file_of(image, "JPEG", progressive=True)
    if kind == "JXL":
        return iso_files.jxl_of(image, lossless=False, level=80, usecontainer=True)
    if kind == "HEIF":
        return iso_files.heif_of(image, tile_size=64)
    if kind == "JPEG2000":
        return iso_files.jp2_of(image, tile_size=(64, 64), irreversible=True, quality_layers=[10])
    return file_of(image, kind)


def mutants(data: bytes, count: int, seed: int = 1) -> Iterator[bytes]:
    """Yields damaged copies of a file: changed, removed, inserted, zeroed and swapped bytes, and cuts."""
    chance = random.Random(seed)
    for _ in range(count):
        mutant = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(mutant))
            match chance.randrange(6):
                case 0:
                    mutant[at] = chance.randrange(256)
                case 1:
                    mutant[at] ^= 1 << chance.randrange(8)
                case 2:
                    del mutant[at : at + chance.randrange(1, 60)]
                case 3:
                    mutant[at:at] = chance.randbytes(chance.randrange(1, 20))
                case 4:
                    size = len(mutant[at : at + 64])
                    mutant[at : at + size] = bytes(size)
                case 5:
                    del mutant[max(at, len(mutant) // 2) :]
            if not mutant:
                break
        yield bytes(mutant)


def outcome(data: bytes) -> str:
    """Returns the result for a file: a digest of its pixels, or the reason why it is refused."""
    try:
        image = load_checked(open_image(data, "x.jpg", _MAX_PIXELS), _MAX_PIXELS).image
    except (ImageFault, NotACandidate) as fault:
        return str(fault.reason)
    return hashlib.sha256(image.mode.encode() + image.tobytes()).hexdigest()[:16]


def main() -> None:
    """Prints a line for each mutant of a kind."""
    warnings.simplefilter("ignore")
    kind, count = sys.argv[1], int(sys.argv[2])
    for number, mutant in enumerate(mutants(original(kind), count)):
        print(kind, number, outcome(mutant))


if __name__ == "__main__":
    main()
