"""Detects pictures that look alike by two small fingerprints of each: a hash of 256 bits, and a patch.

The hash finds candidates. It holds the signs of the 16x16 lowest frequencies of the picture's brightness,
shrunk to 32x32 (a discrete cosine transform, as in the pHash of Zauner, "Implementation and Benchmarking of
Perceptual Image Hash Functions", 2010, which uses 8x8). Frequencies with almost no amplitude count as zero.
Otherwise noise would determine their signs, and so the hash of every smooth picture. Different pictures on
the same background have similar hashes, and smooth pictures have few bits. So the patch decides: 16x16
values of brightness and 4x4 of color.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from shardwright.core.images.rows_first import resize_rows_first

Array = npt.NDArray[Any]

HASH_BYTES = 32
_FREQUENCIES = 16
_SIDE = 32
#: Amplitude, in levels of brightness, below which a frequency counts as zero.
_NOISE = 8.0
_LUMA_SIDE = 16
_CHROMA_SIDE = 4
LUMA_BYTES = _LUMA_SIDE**2
PATCH_BYTES = LUMA_BYTES + 2 * _CHROMA_SIDE**2


def hash_and_patch(thumb: Image.Image) -> tuple[bytes, bytes]:
    """Returns the two fingerprints of a picture.

    Args:
      thumb: The picture or a small copy of it, in mode L or RGB.
    """
    gray = resize_rows_first(thumb.convert("L"), (_SIDE, _SIDE), "bilinear", (0, 0, *thumb.size))
    small = np.asarray(gray, np.float32)
    cosines = _cosines()
    amplitudes = cosines @ small @ cosines.T
    digest = np.packbits(amplitudes.ravel()[1:] > _NOISE, bitorder="little").tobytes()
    pairs = small[0::2] + small[1::2]
    luma = ((pairs[:, 0::2] + pairs[:, 1::2] + 2) * 0.25).astype(np.uint8).tobytes()  # rounded
    if thumb.mode == "L":
        return digest, luma + b"\x80" * (PATCH_BYTES - LUMA_BYTES)
    chroma = thumb.resize((_CHROMA_SIDE, _CHROMA_SIDE), Image.Resampling.BOX).convert("YCbCr").tobytes()
    return digest, luma + chroma[1::3] + chroma[2::3]


@cache
def _cosines() -> Array:
    """Returns the rows for the lowest 16 frequencies of an orthonormal DCT-II of 32 values."""
    frequencies = np.arange(_FREQUENCIES)[:, None]
    places = np.arange(_SIDE)[None, :]
    rows = np.cos(np.pi * frequencies * (2 * places + 1) / (2 * _SIDE)) * np.sqrt(2 / _SIDE)
    rows[0] /= np.sqrt(2)
    return np.ascontiguousarray(rows, dtype=np.float32)


#: Pictures differ if more bits of their hashes differ.
MAX_HAMMING_DISTANCE = 32
#: Limits for patches of pictures that look alike: least correlation of brightness, largest difference of
#: means, largest difference of a color value (benchmarks/duplicates.py).
_MIN_CORRELATION = 0.985
_MAX_BRIGHTNESS_DIFFERENCE = 24.0
_MAX_COLOR_DIFFERENCE = 12
#: With means made equal, the largest difference of a value: a constant, plus a share of the contrast, and a
#: limit for the sum. A mark on a blank page makes another page; in a busy picture the codec causes as much.
_MAX_FLAT_DIFFERENCE = 7.0
_MAX_DIFFERENCE_BY_CONTRAST = 0.45
_MAX_DIFFERENCE = 36.0
#: Least contrast in levels: a patch with less contrast is compared as if it had this much.
_MIN_CONTRAST = 10.0


def bits_apart(left: Array, right: Array) -> Array:
    """Returns the number of differing bits in each pair of hashes.

    Args:
      left: Rows of uint8.
      right: Rows of the same number.
    """
    counts: Array = np.bitwise_count(left ^ right).sum(axis=-1, dtype=np.int64)
    return counts


def patches_agree(left: Array, right: Array) -> Array:
    """Returns for each pair of patches whether their pictures look alike.

    Args:
      left: Rows of uint8.
      right: Rows of the same number.
    """
    luma_left, mean_left = _centered(left)
    luma_right, mean_right = _centered(right)
    difference = luma_left - luma_right
    contrast = luma_left.std(axis=-1) * luma_right.std(axis=-1)  # squared, as a variance
    floor = _MIN_CONTRAST**2
    # With equal contrasts, 1 - correlation is half the mean squared difference divided by the variance.
    correlation = np.where(
        contrast > floor,
        (luma_left * luma_right).mean(axis=-1) / np.maximum(contrast, floor),
        1 - (difference**2).mean(axis=-1) / 2 / floor,
    )
    max_difference = np.minimum(
        _MAX_DIFFERENCE, _MAX_FLAT_DIFFERENCE + _MAX_DIFFERENCE_BY_CONTRAST * np.sqrt(contrast)
    )
    color = np.abs(left[:, LUMA_BYTES:].astype(np.int16) - right[:, LUMA_BYTES:]).max(axis=-1)
    agree: Array = (
        (correlation >= _MIN_CORRELATION)
        & (np.abs(difference).max(axis=-1) <= max_difference)
        & (np.abs(mean_left - mean_right) <= _MAX_BRIGHTNESS_DIFFERENCE)
        & (color <= _MAX_COLOR_DIFFERENCE)
    )
    return agree


def means_of(patches: Array) -> Array:
    """Returns the means of each patch: brightness and two colors.

    Args:
      patches: Rows of uint8.
    """
    half = (LUMA_BYTES + PATCH_BYTES) // 2
    parts = (patches[:, :LUMA_BYTES], patches[:, LUMA_BYTES:half], patches[:, half:])
    return np.stack([part.mean(axis=1) for part in parts], axis=1)


def _centered(patches: Array) -> tuple[Array, Array]:
    luma = patches[:, :LUMA_BYTES].astype(np.float32)
    means = luma.mean(axis=-1)
    return luma - means[:, None], means
