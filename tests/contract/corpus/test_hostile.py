"""Thousands of broken, strange and malicious images, each converted or refused with a reason.

Needs a folder named by SHARDWRIGHT_CORPORA that contains `hostile/`, for instance the test images of
Pillow and of other imaging projects.
"""

from __future__ import annotations

import io
import time
import warnings
from collections import Counter

import numpy as np
import pytest
from helpers.repository import corpora
from PIL import Image, ImageOps

from shardwright.core.images.convert import convert_image
from shardwright.core.images.signatures import kind_of
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault, NotACandidate
from shardwright.schemas.image_formats import SUPPORTED_KINDS

pytestmark = [pytest.mark.corpus, pytest.mark.filterwarnings("ignore::UserWarning")]

_SETTINGS = ConvertSettings(input=("in",), output="out", resize="64", image_format="png")
_SLOWEST_SECONDS = 10.0
#: Reasons for refusing a file that Pillow itself decodes.
_EXCUSES = {
    ("TOO_MANY_PIXELS", "more than"): "above --max_pixels, where Pillow only warns",
    ("TOO_MANY_PIXELS", "holds at most"): "no stored format holds it",
    ("CORRUPT", "the checksum of the pixel data"): "PNG data that fails its own checksum",
    ("TRUNCATED", "rows are missing"): "PNG whose data ends before its picture does",
    ("TRUNCATED", "premature end of data segment"): "JPEG of which a part is made up",
    ("CORRUPT", "extraneous bytes before marker 0xd"): "JPEG whose restart markers stand at wrong places",
    ("UNSUPPORTED_FORMAT", "its codes begin with"): "GIF with wider codes than the format allows",
    ("UNSUPPORTED_FORMAT", "tiff_jpeg compression"): "old-style JPEG in TIFF, which TIFF's authors withdrew",
    ("CORRUPT", "its planar configuration"): "TIFF of which Pillow makes other pixels each time",
    ("UNSUPPORTED_FORMAT", "have no defined brightness"): "32-bit or float pixels without a scale",
}


def _pillow_decodes(data: bytes, kind: str) -> bool:
    """Returns whether Pillow decodes the first frame."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=(SUPPORTED_KINDS[kind],)) as image:
                image.load()
                ImageOps.exif_transpose(image).convert("RGB")
    except Exception:
        return False
    return True


def test_every_hostile_file_is_converted_or_refused_with_a_reason() -> None:
    converted: Counter[str | None] = Counter()
    unexcused: list[str] = []
    for path in sorted(path for path in corpora("hostile").rglob("*") if path.is_file()):
        data, refusal = path.read_bytes(), None
        kind = kind_of(data[:512])
        begin = time.perf_counter()
        try:
            image = convert_image(data, path.name, _SETTINGS)
            assert np.asarray(Image.open(io.BytesIO(image.encoded))).shape == (64, 64, 3), path
            converted[kind] += 1
        except ImageFault as fault:
            refusal = fault
        except NotACandidate:
            assert kind not in SUPPORTED_KINDS, path
        assert time.perf_counter() - begin < _SLOWEST_SECONDS, path
        if refusal is None:
            continue
        assert refusal.message, path
        excused = any(reason == refusal.reason and part in refusal.message for reason, part in _EXCUSES)
        if kind in SUPPORTED_KINDS and not excused and _pillow_decodes(data, kind):
            unexcused.append(f"{path.name}: {refusal.reason} {refusal.message}")
    assert not unexcused
    assert converted["jpeg"]
