"""Finds similar images among many, in a time that does not grow with the square of their number.

Similar hashes share some sequence of bits exactly (locality-sensitive hashing). The hash is dealt into bands,
images with an equal band meet in a bucket, and only images of one bucket are compared. In a large bucket each
image is compared with its neighbors in an order that puts similar images near each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.core.images.perceptual_hash import (
    HASH_BYTES,
    MAX_HAMMING_DISTANCE,
    PATCH_BYTES,
    bits_apart,
    means_of,
    patches_agree,
)

Array = npt.NDArray[Any]
#: Ranks pairs, given by the indexes of their first and second images; the most severe pair is lowest.
Rank = Callable[[Array, Array], Array]

BANDS = 6
_BAND_BITS = 24
_SIDE = 16
#: A band with fewer bits set is the band of most smooth images. Those are also separated by mean brightness
#: and colors, in steps with a different offset for each band, so that two close values share a step in at
#: least one of them.
_MIN_BAND_BITS = 2
_STEPS = np.array([96, 48, 48])
#: Up to this many images with an equal band are all compared with each other. Larger buckets use windows of
#: this many neighbors, which overlap a little.
WINDOW = 192
_OVERLAP = 48


def _deal() -> Array:
    """Returns the bits of each band: the lowest frequencies, which change least, dealt in turn."""
    sums = np.add.outer(np.arange(_SIDE), np.arange(_SIDE)).ravel()[1:]
    lowest = np.argsort(sums, kind="stable")[: BANDS * _BAND_BITS]
    return lowest.reshape(_BAND_BITS, BANDS).T


_BITS = _deal()


@cache
def _directions() -> Array:
    """Returns, for each band, the weight of each value of a patch in the order of large buckets."""
    # NumPy imports its generators when they are used, which takes long.
    return np.random.RandomState(0).choice(np.array([-1, 1], np.float32), (BANDS, PATCH_BYTES))


def bands_of(hashes: Sequence[bytes], patches: Sequence[bytes]) -> list[list[bytes]]:
    """Returns the bands of each picture.

    Args:
      hashes: Hashes of `perceptual_hash.hash_and_patch`.
      patches: Patches of the same images.
    """
    if not hashes:
        return []
    bits = np.unpackbits(_rows(hashes, HASH_BYTES), axis=1, bitorder="little")
    means = means_of(_rows(patches, PATCH_BYTES))
    bands = []
    for number, places in enumerate(_BITS):
        band = bits[:, places]
        steps = ((means + _STEPS * number / BANDS) // _STEPS).astype(np.uint8)
        smooth = band.sum(axis=1) < _MIN_BAND_BITS
        rows = zip(np.packbits(band, axis=1), steps, smooth)
        bands.append([row.tobytes() + (step.tobytes() if flat else b"") for row, step, flat in rows])
    return [list(row) for row in zip(*bands)]


def alike(
    hashes: Sequence[bytes], patches: Sequence[bytes], rank: Rank, band: int = 0
) -> Iterator[tuple[int, int, int]]:
    """Yields for each image that is similar to earlier ones its most severe pair with one of them.

    Args:
      hashes: Hashes of images with an equal band, in a fixed order.
      patches: Patches of the same images.
      rank: Ranks pairs by severity. Among equally severe pairs, the earliest first image counts.
      band: Number of the equal band.

    Yields:
      Two indexes in that order, the lower one first, and the number of hash bits that differ. In a large
      bucket the same second index can occur several times.
    """
    if len(hashes) < 2:
        return
    rows, patch_rows = _rows(hashes, HASH_BYTES), _rows(patches, PATCH_BYTES)
    again, windows = _windows(rows, patch_rows, band)
    yield from ((first, second, 0) for first, second in again)
    for places in windows:
        yield from _gravest(places, rows, patch_rows, rank)


def similar_pairs(
    hashes: Sequence[bytes], patches: Sequence[bytes], band: int = 0
) -> Iterator[tuple[int, int]]:
    """Yields all pairs of similar images, as pairs of indexes, the lower one first.

    A pair may occur several times. Of images with equal fingerprints, each is paired with the first only.

    Args:
      hashes: Hashes of images with an equal band, in a fixed order.
      patches: Patches of the same images.
      band: Number of the equal band.
    """
    if len(hashes) < 2:
        return
    rows, patch_rows = _rows(hashes, HASH_BYTES), _rows(patches, PATCH_BYTES)
    again, windows = _windows(rows, patch_rows, band)
    yield from again
    for places in windows:
        firsts, seconds, _ = _similar(places, rows, patch_rows)
        yield from zip(firsts.tolist(), seconds.tolist())


def _windows(rows: Array, patch_rows: Array, band: int) -> tuple[Iterator[tuple[int, int]], Iterator[Array]]:
    """Returns the pairs of images with equal fingerprints, and the groups of others to compare.

    Pairs of equal images are empty for few images, which are all compared.
    """
    places = np.arange(len(rows))
    if len(places) <= WINDOW:
        return iter(()), iter((places,))
    _, firsts, groups = np.unique(
        np.concatenate([rows, patch_rows], axis=1), axis=0, return_index=True, return_inverse=True
    )
    first = firsts[groups.ravel()]
    again = places[first != places]
    equal = zip(first[again].tolist(), again.tolist())
    places = np.sort(firsts)
    if len(places) <= WINDOW:
        return equal, iter((places,))
    order = places[_neighbors(rows[places], patch_rows[places], band)]
    begins = range(0, len(order) - _OVERLAP, WINDOW - _OVERLAP)
    return equal, (np.sort(order[begin : begin + WINDOW]) for begin in begins)


def _neighbors(rows: Array, patch_rows: Array, band: int) -> Array:
    """Returns an order that puts similar images near each other; each band has a different order."""
    bits = np.unpackbits(rows, axis=1, bitorder="little")[:, _BITS[(band + 1) % BANDS]]
    direction = patch_rows.astype(np.float32) @ _directions()[band]  # exact, because these are whole numbers
    return np.lexsort((direction, *bits.T))


def _similar(places: Array, rows: Array, patch_rows: Array) -> tuple[Array, Array, Array]:
    """Compares all given images with each other; returns the similar pairs and how many bits differ."""
    left, right = np.triu_indices(len(places), 1)
    firsts, seconds = places[left], places[right]
    distances = bits_apart(rows[firsts], rows[seconds])
    near = np.flatnonzero(distances <= MAX_HAMMING_DISTANCE)
    near = near[patches_agree(patch_rows[firsts[near]], patch_rows[seconds[near]])] if len(near) else near
    return firsts[near], seconds[near], distances[near]


def _gravest(places: Array, rows: Array, patch_rows: Array, rank: Rank) -> Iterator[tuple[int, int, int]]:
    """Compares all given images with each other; yields as `alike` does, each second index once."""
    firsts, seconds, distances = _similar(places, rows, patch_rows)
    order = np.lexsort((firsts, rank(firsts, seconds), seconds))
    _, begins = np.unique(seconds[order], return_index=True)
    chosen = order[begins]
    yield from zip(firsts[chosen].tolist(), seconds[chosen].tolist(), distances[chosen].tolist())


def _rows(values: Sequence[bytes], width: int) -> Array:
    return np.frombuffer(b"".join(values), np.uint8).reshape(-1, width)
