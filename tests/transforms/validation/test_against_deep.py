"""Deep images that other software converted: equal within the tolerance that 8-bit images have."""

from __future__ import annotations

from collections.abc import Callable

import imagecodecs
import numpy as np
import pytest

from shardwright.transforms.validation.against.record import ALIKE, _alike

RANDOM = np.random.default_rng(0)
DEEP = RANDOM.integers(20_000, 40_000, (20, 24, 3), np.uint16)
FLOATS = RANDOM.normal(size=(20, 24, 1)).astype(np.float32)
FLOATS[3, 4] = np.nan
FLOATS[5, 6] = -np.inf


def png(pixels: np.ndarray) -> bytes:
    return bytes(imagecodecs.png_encode(pixels))


def raw(pixels: np.ndarray) -> bytes:
    return pixels.astype(pixels.dtype.newbyteorder("<")).tobytes()


@pytest.mark.parametrize("stored", [png, raw])
def test_samples_of_16_bits_are_compared_in_8_bit_units(stored: Callable[[np.ndarray], bytes]) -> None:
    one = stored(DEEP)
    assert _alike(one, stored(DEEP + np.uint16(int(ALIKE * 257) - 2)), "uint16")
    assert not _alike(one, stored(DEEP + np.uint16(int(ALIKE * 257) + 2)), "uint16")
    assert not _alike(one, stored(DEEP[:-1]), "uint16")


def test_a_changed_square_is_found() -> None:
    other = DEEP.copy()
    other[8:16, 8:16] += np.uint16(25 * 257)
    assert not _alike(png(DEEP), png(other), "uint16")


def test_floats_are_compared_by_the_range_of_the_image() -> None:
    one, span = raw(FLOATS), np.ptp(FLOATS[np.isfinite(FLOATS)])
    assert _alike(one, raw(FLOATS + np.float32(0.99 * ALIKE / 255 * span)), "float32")
    assert not _alike(one, raw(FLOATS + np.float32(1.01 * ALIKE / 255 * span)), "float32")
    nothing = raw(np.full((2, 2, 1), np.nan, np.float32))
    assert _alike(nothing, nothing, "float32")
    for place, value in (((0, 0), np.nan), ((3, 4), 1.0), ((5, 6), np.inf)):
        other = FLOATS.copy()
        other[place] = value
        assert not _alike(one, raw(other), "float32")
    assert not _alike(one, one[:-1], "float32")
