"""Finds pictures that look alike, by two small fingerprints of each: a hash of 256 bits, and a patch.

The hash finds candidates. It holds the signs of the 16x16 lowest frequencies of the picture's brightness,
shrunk to 32x32 (a discrete cosine transform, as in the pHash of Zauner, "Implementation and Benchmarking of
Perceptual Image Hash Functions", 2010, which uses 8x8). Frequencies with almost no amplitude count as zero.
Otherwise noise would determine their signs, and so the hash of every smooth picture. Different pictures on
the same background have similar hashes, and smooth pictures have few bits. So the patch decides: 16x16
values of brightness and 4x4 of color.

Among many images, this takes a time that does not grow with the square of their number. Similar hashes share
some sequence of bits exactly (locality-sensitive hashing). The hash is dealt into bands, images with an equal
band meet in a bucket, and only images of one bucket are compared. In a large bucket each image is compared
with its neighbors in an order that puts similar images near each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from shardwright.core.images.geometry import resize_rows_first

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

#: The rows for the lowest 16 frequencies of an orthonormal DCT-II of 32 values.
_COSINES = np.cos(np.pi * np.arange(_FREQUENCIES)[:, None] * (2 * np.arange(_SIDE) + 1) / (2 * _SIDE))
_COSINES *= np.sqrt(2 / _SIDE)
_COSINES[0] /= np.sqrt(2)
_COSINES = _COSINES.astype(np.float32)

BANDS = 6
_BAND_BITS = 24
#: A band with fewer bits set is the band of most smooth images. Those are also separated by mean brightness
#: and colors, in steps with a different offset for each band, so that two close values share a step in at
#: least one of them.
_MIN_BAND_BITS = 2
_STEPS = np.array([96, 48, 48])
#: Up to this many images with an equal band are all compared with each other. Larger buckets use windows of
#: this many neighbors, which overlap a little.
WINDOW = 192
_OVERLAP = 48


def hash_and_patch(thumb: Image.Image) -> tuple[bytes, bytes]:
    """Returns the two fingerprints of a picture.

    Args:
      thumb: The picture or a small copy of it, in mode L or RGB.
    """
    gray = resize_rows_first(thumb.convert("L"), (_SIDE, _SIDE), "bilinear", (0, 0, *thumb.size))
    small = np.asarray(gray, np.float32)
    amplitudes = _COSINES @ small @ _COSINES.T
    digest = np.packbits(amplitudes.ravel()[1:] > _NOISE, bitorder="little").tobytes()
    pairs = small[0::2] + small[1::2]
    luma = ((pairs[:, 0::2] + pairs[:, 1::2] + 2) * 0.25).astype(np.uint8).tobytes()  # rounded
    if thumb.mode == "L":
        return digest, luma + b"\x80" * (PATCH_BYTES - LUMA_BYTES)
    chroma = thumb.resize((_CHROMA_SIDE, _CHROMA_SIDE), Image.Resampling.BOX).convert("YCbCr").tobytes()
    return digest, luma + chroma[1::3] + chroma[2::3]


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
    luma_left, mean_left = _center(left)
    luma_right, mean_right = _center(right)
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


def _center(patches: Array) -> tuple[Array, Array]:
    luma = patches[:, :LUMA_BYTES].astype(np.float32)
    means = luma.mean(axis=-1)
    return luma - means[:, None], means


_SUMS = np.add.outer(np.arange(_FREQUENCIES), np.arange(_FREQUENCIES)).ravel()[1:]
#: The bits of each band: the lowest frequencies, which change least, dealt in turn.
_BITS = np.argsort(_SUMS, kind="stable")[: BANDS * _BAND_BITS].reshape(_BAND_BITS, BANDS).T


@cache
def _directions() -> Array:
    """Returns, for each band, the weight of each value of a patch in the order of large buckets."""
    # NumPy imports its generators when they are used, which takes long.
    return np.random.RandomState(0).choice(np.array([-1, 1], np.float32), (BANDS, PATCH_BYTES))


def bands_of(hashes: Sequence[bytes], patches: Sequence[bytes]) -> list[list[bytes]]:
    """Returns the bands of each picture.

    Args:
      hashes: Hashes of `hash_and_patch`.
      patches: Patches of the same images.
    """
    if not hashes:
        return []
    bits = np.unpackbits(_rows(hashes, HASH_BYTES), axis=1, bitorder="little")
    # Brightness and two colors.
    parts = np.split(_rows(patches, PATCH_BYTES), (LUMA_BYTES, (LUMA_BYTES + PATCH_BYTES) // 2), axis=1)
    means = np.stack([part.mean(axis=1) for part in parts], axis=1)
    bands = []
    for index, places in enumerate(_BITS):
        band = bits[:, places]
        steps = ((means + _STEPS * index / BANDS) // _STEPS).astype(np.uint8)
        smooth = band.sum(axis=1) < _MIN_BAND_BITS
        rows = zip(np.packbits(band, axis=1), steps, smooth)
        bands.append([row.tobytes() + (step.tobytes() if flat else b"") for row, step, flat in rows])
    return [list(row) for row in zip(*bands)]


def alike(hashes: Sequence[bytes], patches: Sequence[bytes], band: int) -> Iterator[tuple[int, int, int]]:
    """Yields pairs of similar images.

    A pair may occur several times. Of images with equal fingerprints, each is paired with the first only.

    Args:
      hashes: Hashes of images with an equal band, in a fixed order.
      patches: Patches of the same images.
      band: Number of the equal band.

    Yields:
      Two indexes in that order, the lower one first, and the number of hash bits that differ.
    """
    if len(hashes) < 2:
        return
    rows, patch_rows = _rows(hashes, HASH_BYTES), _rows(patches, PATCH_BYTES)
    places = np.arange(len(rows))
    if len(places) > WINDOW:
        _, firsts, groups = np.unique(
            np.concatenate([rows, patch_rows], axis=1), axis=0, return_index=True, return_inverse=True
        )
        first = firsts[groups.ravel()]
        again = places[first != places]
        yield from zip(first[again].tolist(), again.tolist(), repeat(0))
        places = np.sort(firsts)
    for window in _windows(places, rows, patch_rows, band):
        left, right = np.triu_indices(len(window), 1)
        firsts, seconds = window[left], window[right]
        distances = bits_apart(rows[firsts], rows[seconds])
        near = np.flatnonzero(distances <= MAX_HAMMING_DISTANCE)
        if len(near):
            near = near[patches_agree(patch_rows[firsts[near]], patch_rows[seconds[near]])]
        yield from zip(firsts[near].tolist(), seconds[near].tolist(), distances[near].tolist())


def _windows(places: Array, rows: Array, patch_rows: Array, band: int) -> Iterator[Array]:
    """Yields the groups of images that are compared with each other; all at once if they are few."""
    if len(places) <= WINDOW:
        yield places
        return
    # Similar images are near each other; each band has a different order.
    bits = np.unpackbits(rows[places], axis=1, bitorder="little")[:, _BITS[(band + 1) % BANDS]]
    direction = patch_rows[places].astype(np.float32) @ _directions()[band]  # exact: these are whole numbers
    order = places[np.lexsort((direction, *bits.T))]
    for begin in range(0, len(order) - _OVERLAP, WINDOW - _OVERLAP):
        yield np.sort(order[begin : begin + WINDOW])


def _rows(values: Sequence[bytes], width: int) -> Array:
    return np.frombuffer(b"".join(values), np.uint8).reshape(-1, width)
