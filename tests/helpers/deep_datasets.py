"""Small datasets of pictures with 8 and 16 bits, floats and many channels, written without a conversion."""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import imagecodecs
import numpy as np
from PIL import Image

from helpers import pictures
from helpers.tfds_reading import made
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.example import FeatureType
from shardwright.schemas.layouts import CLASSIFICATION, FeatureRole, FeatureSpec
from shardwright.schemas.sidecars import with_sidecars

Pixels = np.ndarray[Any, Any]

LABELS = ("cat", "dog")
#: One size, as if resized, for the kinds with a size; the others have pictures of several sizes.
SIDES = (6, 8)


class Kind(NamedTuple):
    """What the records of a dataset hold.

    Attributes:
      stored: Type and stored format (png, jpg, raw) of each picture.
      channels: Number of channels of all pictures.
      one_size: Whether all pictures have one size.
    """

    stored: Sequence[tuple[str, str]]
    channels: int = 3
    one_size: bool = True

    @property
    def types(self) -> tuple[str, ...]:
        """The sample types, from the narrowest on."""
        return tuple(sorted({dtype for dtype, _ in self.stored}, key=("uint8", "uint16", "float32").index))


KINDS = {
    "png of 16 bits": Kind([("uint16", "png")] * 3),
    "gray png of 16 bits": Kind([("uint16", "png")] * 3, channels=1, one_size=False),
    "png of 8 and 16 bits": Kind([("uint16", "png"), ("uint8", "png")], one_size=False),
    "jpeg next to png of 16 bits": Kind([("uint8", "jpg"), ("uint16", "png"), ("uint8", "jpg")]),
    "raw of 16 bits": Kind([("uint16", "raw")] * 2),
    "raw of 16 bits and many sizes": Kind([("uint16", "raw")] * 3, one_size=False),
    "six channels": Kind([("uint16", "raw")] * 2, channels=6),
    "two channels of 8 bits": Kind([("uint8", "raw")] * 2, channels=2, one_size=False),
    "floats": Kind([("float32", "raw")] * 2, channels=1),
    "floats of many sizes": Kind([("float32", "raw")] * 2, channels=3, one_size=False),
    "raw of all types": Kind([("uint16", "raw"), ("float32", "raw"), ("uint8", "raw")], channels=5),
    "floats and pngs": Kind([("uint16", "png"), ("float32", "raw"), ("uint8", "png")], one_size=False),
}
#: Kinds whose pictures can be read in a type of their own, without choosing one.
OF_ONE_SCALE = [name for name, kind in KINDS.items() if "float32" not in kind.types or len(kind.types) == 1]


def widened(pixels: Pixels, dtype: str) -> Pixels:
    """Returns pixels in the widest type of a dataset."""
    if pixels.dtype.name == dtype:
        return pixels
    if dtype == "uint16":
        return pixels.astype(np.uint16) * 257
    return pixels.astype(np.float32) / np.iinfo(pixels.dtype).max


def random_pixels(dtype: str, shape: tuple[int, ...], seed: int) -> Pixels:
    """Returns random samples over the whole range; floats beyond 0 to 1, with infinity and NaN."""
    random = np.random.default_rng(seed)
    if dtype == "float32":
        pixels = random.normal(0, 1000, shape).astype(np.float32)
        pixels.flat[:3] = np.nan, np.inf, -np.inf
        return pixels
    return random.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def encoded(pixels: Pixels, stored: str) -> bytes:
    """Returns pixels in a stored format."""
    if stored == "raw":
        return pixels.astype(pixels.dtype.newbyteorder("<")).tobytes()
    if stored == "png":
        return bytes(imagecodecs.png_encode(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels))
    return pictures.file_of(Image.fromarray(pixels), "JPEG", quality=95)


@functools.cache
def deep_dataset(name: str) -> tuple[Path, tuple[Pixels, ...]]:
    """Returns the directory of a dataset of one of `KINDS`, and the pixels of its records."""
    kind = KINDS[name]
    folder = Path(tempfile.mkdtemp(prefix="deep-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    pictures: list[Pixels] = []
    records: list[dict[str, Any]] = []
    features = (
        *CLASSIFICATION.features,
        FeatureSpec("image/dtype", FeatureType.BYTES, (), FeatureRole.DTYPE),
    )
    for number, (dtype, stored) in enumerate(kind.stored):
        height, width = SIDES if kind.one_size else (SIDES[0] + number, SIDES[1] - number)
        pixels = random_pixels(dtype, (height, width, kind.channels), number)
        if stored == "jpg":  # all decoders agree on a JPEG of one gray level
            pixels = np.full_like(pixels, 40 + 50 * number)
        data = encoded(pixels, stored)
        pictures.append(pixels)
        values: dict[FeatureRole | None, Any] = {
            FeatureRole.CHANNELS: kind.channels,
            FeatureRole.LABEL: number % 2,
            FeatureRole.LABEL_TEXT: LABELS[number % 2].encode(),
            FeatureRole.ENCODED: data,
            FeatureRole.KEY: f"{LABELS[number % 2]}/{number}".encode(),
            FeatureRole.FORMAT: stored.encode(),
            FeatureRole.HEIGHT: height,
            FeatureRole.SOURCE_SHA256: hashlib.sha256(data).hexdigest().encode(),
            FeatureRole.WIDTH: width,
            FeatureRole.DTYPE: dtype.encode(),
        }
        records.append({spec.name: [values[spec.fill]] for spec in features})
    directory, dataset = made(folder / "deep", features, records, LABELS, **_settings(kind))
    dataset, sidecars = with_sidecars(
        replace(
            dataset,
            layout="classification",
            class_counts={"train": dict(Counter(LABELS[i % 2] for i in range(len(records))))},
            formats={"train": dict(Counter(stored for _, stored in kind.stored))},
            dtypes=dict(Counter(dtype for dtype, _ in kind.stored)),
        )
    )
    for name, content in sidecars.items():
        (directory / name).write_bytes(content)
    (directory / "dataset.json").write_text(json.dumps(dataset.as_json()))
    return directory, tuple(pictures)


def _settings(kind: Kind) -> dict[str, Any]:
    formats = {stored for _, stored in kind.stored}
    settings = ConvertSettings(resize=f"{SIDES[1]}x{SIDES[0]}" if kind.one_size else "").identity()
    settings["image_format"] = formats.pop() if len(formats) == 1 else "keep"
    settings["depth"] = "keep"
    if kind.channels == 1:
        settings["color"] = "gray"
    elif kind.channels != 3:
        settings["channels"] = kind.channels
    return settings
