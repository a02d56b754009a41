"""Thousands of broken, strange and malicious images, each converted or refused with a reason.

Needs a folder named by SHARDWRIGHT_CORPORA that contains `hostile/`, for instance the test images of
Pillow and of other imaging projects.
"""

from __future__ import annotations

import io
import os
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
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


def _files() -> list[Path]:
    root = os.environ.get("SHARDWRIGHT_CORPORA")
    if not root or not (Path(root) / "hostile").is_dir():
        pytest.skip("SHARDWRIGHT_CORPORA names no folder that holds hostile/")
    return sorted(path for path in (Path(root) / "hostile").rglob("*") if path.is_file())


def _pillows_picture(data: bytes, kind: str) -> np.ndarray | None:
    """Returns the first frame upright, on white and small, as Pillow decodes it; None if it cannot."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=(SUPPORTED_KINDS[kind],)) as image:
                image.load()
                upright = ImageOps.exif_transpose(image)
                if upright.has_transparency_data:
                    white = Image.new("RGBA", upright.size, "white")
                    upright = Image.alpha_composite(white, upright.convert("RGBA"))
                return np.asarray(upright.convert("RGB").resize((64, 64), Image.Resampling.BILINEAR))
    except Exception:
        return None


def test_every_hostile_file_is_converted_or_refused_with_a_reason() -> None:
    outcomes: Counter[tuple[str, str]] = Counter()
    times: list[tuple[float, str]] = []
    unexcused: list[str] = []
    far: list[tuple[float, str]] = []
    for path in _files():
        data = path.read_bytes()
        kind = kind_of(data[:512])
        begin = time.perf_counter()
        shown = None
        try:
            converted = convert_image(data, path.name, _SETTINGS)
            outcome = "converted"
            shown = np.asarray(Image.open(io.BytesIO(converted.encoded)))
            assert shown.shape == (64, 64, 3), path
        except ImageFault as fault:
            outcome, message = str(fault.reason), fault.message
            assert message, path
        except NotACandidate as filtered:
            outcome = f"filtered: {filtered.reason}"
        seconds = time.perf_counter() - begin
        times.append((seconds, path.name))
        outcomes[kind if kind in SUPPORTED_KINDS else "other", outcome] += 1
        assert seconds < _SLOWEST_SECONDS, path
        if kind not in SUPPORTED_KINDS or (outcome != "converted" and outcome.startswith("filtered")):
            assert kind not in SUPPORTED_KINDS, path
            continue
        stock = _pillows_picture(data, kind)
        if stock is not None and shown is None:
            excuses = [
                why for (reason, part), why in _EXCUSES.items() if outcome == reason and part in message
            ]
            if not excuses:
                unexcused.append(f"{path.name}: {outcome} {message}")
            outcomes["Pillow decodes", excuses[0] if excuses else "UNEXCUSED"] += 1
        elif stock is not None and shown is not None:
            far.append((float(np.abs(shown.astype(int) - stock).mean()), path.name))
    print()
    for (kind, outcome), count in sorted(outcomes.items()):
        print(f"{kind:15} {outcome:60} {count:5}")
    print("slowest:", *(f"\n  {seconds:6.2f} s  {name}" for seconds, name in sorted(times)[-8:][::-1]))
    print("farthest from Pillow's own rendering (levels):")
    print(*(f"  {value:6.1f}  {name}\n" for value, name in sorted(far)[-40:][::-1]), sep="")
    assert not unexcused
    assert outcomes["jpeg", "converted"] > 0
