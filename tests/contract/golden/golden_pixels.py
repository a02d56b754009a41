"""Small image files with settings, and the sha256 of the pixels to which they are converted."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import numpy as np
from helpers import pictures
from PIL import Image


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


def document() -> dict[str, Any]:
    """Returns what `pixels.json` holds."""
    return {
        name: {
            "settings": settings,
            "sha256": digest(data, settings),
            "file": base64.b64encode(data).decode(),
        }
        for name, (data, settings) in cases().items()
    }
