"""Counts the damage that Shardwright, Pillow, TensorFlow and OpenCV detect: the table of docs/validating.md.

Every photograph is resized to 500 x 400 pixels, stored in each format, and damaged in each way.
"""

from __future__ import annotations

import argparse
import io
import random
from collections.abc import Callable
from typing import Any

import cv2
import imagecodecs
import numpy as np
import numpy.typing as npt
import pillow_heif
import tifffile
from command import Benchmark, Found, run_benchmark
from inputs import photos
from PIL import Image
from results import result_of

from shardwright.core.images.decode import load_checked, open_image
from shardwright.schemas.errors import ImageFault

_MAX_PIXELS = 1 << 24


def _pillow_writes(image_format: str, **settings: Any) -> Callable[[Image.Image], bytes]:
    def encode(picture: Image.Image) -> bytes:
        buffer = io.BytesIO()
        picture.save(buffer, image_format, **settings)
        return buffer.getvalue()

    return encode


def _heic(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    pillow_heif.from_pillow(picture).save(buffer, quality=90)
    return buffer.getvalue()


def _jpeg_xl(picture: Image.Image) -> bytes:
    return bytes(imagecodecs.jpegxl_encode(np.asarray(picture), distance=1.0))


def _in_16_bits(picture: Image.Image) -> npt.NDArray[np.uint16]:
    """Returns a picture with 16 bits per channel whose lower bits are noise, as a camera's are."""
    pixels = np.asarray(picture).astype(np.uint16) << 8
    noise = np.random.default_rng(1).integers(0, 256, pixels.shape, np.uint16)
    return np.asarray(pixels | noise, np.uint16)


def _png_of_16_bits(picture: Image.Image) -> bytes:
    return bytes(imagecodecs.png_encode(_in_16_bits(picture)))


def _tiff_of_16_bits(compression: str) -> Callable[[Image.Image], bytes]:
    def encode(picture: Image.Image) -> bytes:
        buffer = io.BytesIO()
        tifffile.imwrite(
            buffer, _in_16_bits(picture), photometric="rgb", compression=compression, predictor=True
        )
        return buffer.getvalue()

    return encode


_FORMATS: dict[str, Callable[[Image.Image], bytes]] = {
    "JPEG": _pillow_writes("JPEG", quality=90),
    "progressive JPEG": _pillow_writes("JPEG", quality=90, progressive=True),
    "PNG": _pillow_writes("PNG"),
    "PNG, 16 bits": _png_of_16_bits,
    "WebP": _pillow_writes("WEBP", quality=90),
    "GIF": _pillow_writes("GIF"),
    "TIFF, LZW": _pillow_writes("TIFF", compression="tiff_lzw"),
    "TIFF, Deflate": _pillow_writes("TIFF", compression="tiff_adobe_deflate"),
    "TIFF, 16 bits, LZW": _tiff_of_16_bits("lzw"),
    "TIFF, 16 bits, Deflate": _tiff_of_16_bits("zlib"),
    "HEIC": _heic,
    "AVIF": _pillow_writes("AVIF", quality=90),
    "JPEG 2000": _pillow_writes("JPEG2000", quality_mode="rates", quality_layers=[10]),
    "JPEG 2000, lossless": _pillow_writes("JPEG2000"),
    "JPEG XL": _jpeg_xl,
}
_Damage = Callable[[bytes, random.Random], bytes]


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) // 4, len(data) - 20)]


def _cut_and_closed(data: bytes, chance: random.Random) -> bytes:
    end = {b"\xff\xd8": b"\xff\xd9", b"GI": b"\0;"}.get(data[:2], b"")
    return _cut(data, chance) + end


def _zeroed(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) // 4, len(data) - 80)
    return data[:at] + bytes(64) + data[at + 64 :]


def _swapped(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) // 4, len(data) - 1100)
    return data[:at] + data[at + 512 : at + 1024] + data[at : at + 512] + data[at + 1024 :]


def _bit(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) // 4, len(data))
    return data[:at] + bytes((data[at] ^ 1 << chance.randrange(8),)) + data[at + 1 :]


_DAMAGES: dict[str, _Damage] = {
    "cut off": _cut,
    "cut off and closed": _cut_and_closed,
    "64 bytes zeroed": _zeroed,
    "512 bytes swapped": _swapped,
    "one bit flipped": _bit,
    "none": lambda data, _: data,
}


def _here(data: bytes) -> bool:
    try:
        load_checked(open_image(data, "x.jpg", _MAX_PIXELS), _MAX_PIXELS)
    except ImageFault:
        return True
    return False


def _pillow(data: bytes) -> bool:
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except Exception:
        return True
    return False


def _tensorflow(data: bytes) -> bool:
    import tensorflow as tf

    try:
        tf.io.decode_image(data)
    except tf.errors.InvalidArgumentError:
        return True
    return False


def _opencv(data: bytes) -> bool:
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) is None


_READERS = {"Shardwright": _here, "Pillow": _pillow, "TensorFlow": _tensorflow, "OpenCV": _opencv}
#: Formats that a reader does not know, by the beginning of their names.
_NOT_READ = {
    "Shardwright": (),
    "Pillow": ("HEIC", "JPEG XL"),
    "TensorFlow": ("WebP", "TIFF", "HEIC", "AVIF", "JPEG 2000", "JPEG XL"),
    "OpenCV": ("HEIC", "JPEG XL"),
}


def measure(options: argparse.Namespace) -> Found:
    """Counts the files of each format and damage that each reader refuses."""
    given = photos(options, max(options.files, 10))
    pictures = []
    for path in sorted(given.folder.rglob("*.jp*g"))[: options.files]:
        with Image.open(path) as image:
            pictures.append(image.convert("RGB").resize((500, 400)))
    results = []
    for name, encode in _FORMATS.items():
        originals = [encode(picture) for picture in pictures]
        for damage, apply in _DAMAGES.items():
            chance = random.Random(1)
            files = [apply(data, chance) for data in originals for _ in range(5)]
            results += [
                result_of(f"{name}; {damage}", reader, "files refused", [sum(map(refuses, files))])
                for reader, refuses in _READERS.items()
                if not name.startswith(_NOT_READ[reader])
            ]
    return Found(f"{len(pictures) * 5} files of each kind", results)


BENCHMARK = Benchmark(
    "damage",
    "Counts the damage that Shardwright, Pillow, TensorFlow and OpenCV detect.",
    measure,
    quick={"files": 3},
    full={"files": 20},
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
