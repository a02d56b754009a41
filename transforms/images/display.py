"""Turns samples of any type and number into a picture of 8 bits that can be shown and looked at.

The measures of `--quality`, the fingerprints of duplicates and all thumbnails use this picture.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from shardwright.schemas.sample_types import HIGHEST

Array = npt.NDArray[Any]

_COLOURS = 3
#: Number of samples that are converted at once, which need several times their size.
_AT_ONCE = 1 << 20


def display_picture(pixels: Array) -> Image.Image:
    """Returns a picture of the same size in mode L or RGB.

    uint16 is scaled from 65535 to 255. float32 is stretched from its least to its greatest finite value; NaN
    and minus infinity become black, infinity becomes white. Of more than three channels the first three are
    shown as red, green and blue, and of two the first.

    Args:
      pixels: HxWxC of uint8, uint16 or float32.
    """
    shown = pixels[:, :, : _COLOURS if pixels.shape[2] >= _COLOURS else 1]
    if shown.dtype != np.uint8:
        eight = np.empty(shown.shape, np.uint8)
        rows = max(1, _AT_ONCE // max(1, shown[0].size)) if len(shown) else 1
        low, high = _finite_range(shown, rows) if shown.dtype.kind == "f" else (0.0, HIGHEST["uint16"])
        for top in range(0, len(shown), rows):
            eight[top : top + rows] = _stretched(shown[top : top + rows], low, high)
        shown = eight
    return Image.fromarray(np.ascontiguousarray(shown[:, :, 0] if shown.shape[2] == 1 else shown))


def _finite_range(pixels: Array, rows: int) -> tuple[float, float]:
    """Returns the least and the greatest finite value; zeros if there is none."""
    low, high = np.inf, -np.inf
    for top in range(0, len(pixels), rows):
        part = pixels[top : top + rows]
        finite = part[np.isfinite(part)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (low, high) if low <= high else (0.0, 0.0)


def _stretched(values: Array, low: float, high: float) -> Array:
    """Returns uint8 values from 0 at `low` to 255 at `high`; 0 for all values if both are equal."""
    if high <= low:
        return np.zeros(values.shape, np.uint8)
    scaled = (values.astype(np.float64) - low) * (255 / (high - low))
    if values.dtype.kind == "f":
        scaled = np.nan_to_num(scaled, nan=0, posinf=255, neginf=0)
    return np.rint(scaled).astype(np.uint8)
