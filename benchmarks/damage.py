"""Counts the damage that Shardwright, Pillow, TensorFlow and OpenCV detect: the table of docs/validating.md.

Every photograph is resized to 500 x 400 pixels, stored in each format, and damaged in each way.
"""

from __future__ import annotations

import argparse
import io
import random
from collections.abc import Callable

import cv2
import numpy as np
from command import Benchmark, Found, run_benchmark
from inputs import photos
from PIL import Image
from results import result_of

from shardwright.schemas.errors import ImageFault
from shardwright.transforms.images.decode import load, open_image

_MAX_PIXELS = 1 << 24
_FORMATS = {
    "JPEG": {"quality": 90},
    "progressive JPEG": {"quality": 90, "progressive": True},
    "PNG": {},
    "WebP": {"quality": 90},
    "GIF": {},
    "TIFF, LZW": {"compression": "tiff_lzw"},
    "TIFF, Deflate": {"compression": "tiff_adobe_deflate"},
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
        load(open_image(data, "x.jpg", _MAX_PIXELS), _MAX_PIXELS)
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
_NOT_READ = {("TensorFlow", "WebP"), ("TensorFlow", "TIFF, LZW"), ("TensorFlow", "TIFF, Deflate")}


def measure(options: argparse.Namespace) -> Found:
    """Counts the files of each format and damage that each reader refuses."""
    given = photos(options, max(options.files, 10))
    pictures = []
    for path in sorted(given.folder.rglob("*.jp*g"))[: options.files]:
        with Image.open(path) as image:
            pictures.append(image.convert("RGB").resize((500, 400)))
    results = []
    for name, settings in _FORMATS.items():
        for damage, apply in _DAMAGES.items():
            chance = random.Random(1)
            files = []
            for picture in pictures:
                buffer = io.BytesIO()
                picture.save(buffer, name.split()[-1] if "JPEG" in name else name.split(",")[0], **settings)
                files += [apply(buffer.getvalue(), chance) for _ in range(5)]
            results += [
                result_of(f"{name}; {damage}", reader, "files refused", [sum(map(refuses, files))])
                for reader, refuses in _READERS.items()
                if (reader, name) not in _NOT_READ
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
