"""Finds pictures that look alike among many, in time that grows with their number and not with its square.

Two near hashes share some stretch of bits exactly (locality-sensitive hashing): the hash is dealt into
bands, pictures with an equal band meet in a bucket, and only those of a bucket are compared. In a large one
each is compared with its neighbours in an order in which pictures that look alike are near each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.transforms.images.perceptual_hash import (
    HASH_BYTES,
    MOST_BITS_APART,
    PATCH_BYTES,
    bits_apart,
    means_of,
    patches_agree,
)

Array = npt.NDArray[Any]
#: Ranks pairs, given by the places of their firsts and of their seconds: the gravest lowest.
Rank = Callable[[Array, Array], Array]

BANDS = 6
_BAND_BITS = 24
_SIDE = 16
#: A band with fewer bits set is that of most smooth pictures: those are also told apart by mean brightness
#: and colours, in steps that begin elsewhere for each band, so that no two near values lie in different
#: steps for all of them.
_LEAST_BAND_BITS = 2
_STEPS = np.array([96, 48, 48])
#: Pictures with an equal band are all compared with each other up to this many, and else in windows of as
#: many neighbours, each of which takes over a few of the one before.
WINDOW = 192
_OVERLAP = 48


def _deal() -> Array:
    """Returns the bits of each band: the lowest frequencies, which change least, dealt in turn."""
    sums = np.add.outer(np.arange(_SIDE), np.arange(_SIDE)).ravel()[1:]
    lowest = np.argsort(sums, kind="stable")[: BANDS * _BAND_BITS]
    return lowest.reshape(_BAND_BITS, BANDS).T


_BITS = _deal()
#: For each band, how much each value of a patch counts in the order of large buckets.
_DIRECTIONS = np.random.RandomState(0).choice(np.array([-1, 1], np.float32), (BANDS, PATCH_BYTES))


def bands_of(hashes: Sequence[bytes], patches: Sequence[bytes]) -> list[list[bytes]]:
    """Returns the bands of each picture.

    Args:
      hashes: of `perceptual_hash.hash_and_patch`.
      patches: of the same pictures.
    """
    if not hashes:
        return []
    bits = np.unpackbits(_rows(hashes, HASH_BYTES), axis=1, bitorder="little")
    means = means_of(_rows(patches, PATCH_BYTES))
    bands = []
    for number, places in enumerate(_BITS):
        band = bits[:, places]
        steps = ((means + _STEPS * number / BANDS) // _STEPS).astype(np.uint8)
        smooth = band.sum(axis=1) < _LEAST_BAND_BITS
        rows = zip(np.packbits(band, axis=1), steps, smooth)
        bands.append([row.tobytes() + (step.tobytes() if flat else b"") for row, step, flat in rows])
    return [list(row) for row in zip(*bands)]


def alike(
    hashes: Sequence[bytes], patches: Sequence[bytes], rank: Rank, band: int = 0
) -> Iterator[tuple[int, int, int]]:
    """Yields for each picture that looks like earlier ones the gravest of its pairs with them.

    Args:
      hashes: of pictures with an equal band, in an order of theirs.
      patches: of the same.
      rank: how grave pairs are; of equally grave ones, that with the earliest counts.
      band: which is equal.

    Yields:
      Two places in that order, the lesser first, and how many bits of the hashes differ. In many pictures
      the same second can come several times.
    """
    if len(hashes) < 2:
        return
    rows, prints = _rows(hashes, HASH_BYTES), _rows(patches, PATCH_BYTES)
    places = np.arange(len(hashes))
    if len(places) > WINDOW:  # pictures with equal prints need no comparison
        _, firsts, groups = np.unique(
            np.concatenate([rows, prints], axis=1), axis=0, return_index=True, return_inverse=True
        )
        first = firsts[groups.ravel()]
        again = places[first != places]
        yield from zip(first[again].tolist(), again.tolist(), [0] * len(again))
        places = np.sort(firsts)
    if len(places) <= WINDOW:
        yield from _gravest(places, rows, prints, rank)
        return
    order = places[_neighbours(rows[places], prints[places], band)]
    for begin in range(0, len(order) - _OVERLAP, WINDOW - _OVERLAP):
        yield from _gravest(np.sort(order[begin : begin + WINDOW]), rows, prints, rank)


def _neighbours(rows: Array, prints: Array, band: int) -> Array:
    """Returns an order in which pictures that look alike are near each other; another one for each band."""
    bits = np.unpackbits(rows, axis=1, bitorder="little")[:, _BITS[(band + 1) % BANDS]]
    direction = prints.astype(np.float32) @ _DIRECTIONS[band]  # whole numbers, and exact
    return np.lexsort((direction, *bits.T))


def _gravest(places: Array, rows: Array, prints: Array, rank: Rank) -> Iterator[tuple[int, int, int]]:
    """Compares all of some pictures with each other; yields as `alike` does, each second once."""
    left, right = np.triu_indices(len(places), 1)
    firsts, seconds = places[left], places[right]
    distances = bits_apart(rows[firsts], rows[seconds])
    near = np.flatnonzero(distances <= MOST_BITS_APART)
    near = near[patches_agree(prints[firsts[near]], prints[seconds[near]])] if len(near) else near
    firsts, seconds, distances = firsts[near], seconds[near], distances[near]
    order = np.lexsort((firsts, rank(firsts, seconds), seconds))
    _, begins = np.unique(seconds[order], return_index=True)
    chosen = order[begins]
    yield from zip(firsts[chosen].tolist(), seconds[chosen].tolist(), distances[chosen].tolist())


def _rows(values: Sequence[bytes], width: int) -> Array:
    return np.frombuffer(b"".join(values), np.uint8).reshape(-1, width)
