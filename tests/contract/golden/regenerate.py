"""Rewrites pixels.json, records.json, datasets.json and findings.json.

The first file holds small image files, settings, and the sha256 of the resulting pixels; the second a record
of each layout; the third the digests of datasets from every kind of source; the fourth what validation finds
in changed datasets. Run this, and check the changes, if pixels, records, the order of records or findings are
meant to change. Names of files limit what is written:

    python tests/contract/golden/regenerate.py [findings.json]
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

sys.path.append(str(HERE))

import golden_datasets  # noqa: E402
import golden_findings  # noqa: E402
import golden_records  # noqa: E402
from helpers import pictures  # noqa: E402
from helpers.repository import PHOTOS  # noqa: E402


def cases() -> dict[str, tuple[bytes, dict[str, str]]]:
    """Returns name -> (image file, settings that differ from the defaults)."""
    photo = Image.fromarray(pictures.rgb_pixels(61, 47))
    small = Image.fromarray(pictures.rgb_pixels())
    rgba = small.copy()
    rgba.putalpha(Image.fromarray(pictures.alpha_pixels()))
    cmyk = Image.frombytes("CMYK", (8, 4), np.arange(128, dtype=np.uint8).tobytes())
    gray16 = Image.fromarray(pictures.gray16_pixels())
    file_of = pictures.file_of
    profile = pictures.icc_profile(pictures.SRGB_PRIMARIES, 1.8)
    return {
        "jpeg_420": (file_of(photo, "JPEG", quality=80), {}),
        "jpeg_upright_fit": (file_of(photo, "JPEG", 6, quality=80), {"resize": "20x30", "fit": "fit"}),
        "jpeg_reduced": (file_of(photo, "JPEG", 3, quality=80), {"resize": "7", "fit": "cover"}),
        "jpeg_cmyk": (file_of(cmyk, "JPEG", quality=80), {}),
        "jpeg_gamma": (file_of(photo, "JPEG", quality=80, icc_profile=profile), {"resize": "16"}),
        "jpeg_grey": (file_of(photo, "JPEG", quality=80), {"color": "gray", "resample": "lanczos"}),
        "png_alpha": (file_of(rgba, "PNG", 8), {"background": "#336699"}),
        "png_16_bit": (file_of(gray16, "PNG"), {"resize": "9x30", "fit": "pad"}),
        "webp_lossy": (file_of(small, "WEBP", 5, quality=70), {"resample": "bicubic", "resize": "11"}),
        "gif": (file_of(small.quantize(16), "GIF"), {"resize": "40", "fit": "contain"}),
    }


def digest(data: bytes, settings: dict[str, str]) -> str:
    """Returns the sha256 of the shape and pixels that a file is converted to."""
    pixels = pictures.to_png(data, **settings)
    return hashlib.sha256(repr(pixels.shape).encode() + pixels.tobytes()).hexdigest()


def write_pixels() -> None:
    document = {
        name: {
            "settings": settings,
            "sha256": digest(data, settings),
            "file": base64.b64encode(data).decode(),
        }
        for name, (data, settings) in cases().items()
    }
    (HERE / "pixels.json").write_text(json.dumps(document, indent=1) + "\n")


def write_records() -> None:
    records = golden_records.document()
    (HERE / "records.json").write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n", "utf-8")


def write_datasets() -> None:
    datasets = {}
    for name in golden_datasets.names():
        with tempfile.TemporaryDirectory() as folder:
            datasets[name] = golden_datasets.digests(name, Path(folder))
    stated = {"versions": golden_datasets.versions(), "datasets": datasets}
    (HERE / "datasets.json").write_text(json.dumps(stated, indent=1) + "\n")


def write_findings() -> None:
    with tempfile.TemporaryDirectory() as folder:
        golden = golden_findings.GoldenFindings(Path(folder), PHOTOS)
        found = {golden_findings.name_of(change): golden.of(change) for change in golden_findings.CHANGES}
    # One line per change, so that a difference is easy to read.
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in found.items())
    versions = json.dumps(golden_findings.versions())
    (HERE / "findings.json").write_text(f'{{"versions": {versions},\n"findings": {{\n{lines}\n}}}}\n')


#: File -> function that writes it.
FILES = {
    "pixels.json": write_pixels,
    "records.json": write_records,
    "datasets.json": write_datasets,
    "findings.json": write_findings,
}


def main() -> None:
    for name in sys.argv[1:] or FILES:
        FILES[name]()


if __name__ == "__main__":
    main()
