"""Sums over samples are exact: compared with fractions and with NumPy's integers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers.examples import examples
from hypothesis import given, settings
from hypothesis.extra import numpy as arrays

from shardwright.schemas.statistics.sketches import FLOAT32_BITS
from shardwright.transforms.images import sample_sums
from shardwright.transforms.images.sample_sums import sum_samples

_SHAPES = arrays.array_shapes(min_dims=3, max_dims=3, max_side=6)


@settings(max_examples=examples(60), deadline=None)
@given(arrays.arrays(np.float32, _SHAPES))
def test_sums_of_floats_are_exact(pixels: np.ndarray[Any, Any]) -> None:
    found = sum_samples(pixels)
    assert found.dtype == "float32"
    for number, channel in enumerate(found.channels):
        values = pixels[:, :, number].ravel()
        exact = [Fraction(float(value)) for value in values[np.isfinite(values)]]
        assert channel.finite == len(exact)
        assert channel.total == sum(exact) * 2**FLOAT32_BITS
        assert channel.squares == sum(value**2 for value in exact) * 2 ** (2 * FLOAT32_BITS)
        assert (channel.low, channel.high) == ((min(exact), max(exact)) if exact else (0, 0))
        assert channel.nan == np.isnan(values).sum()
        assert channel.infinite == np.isinf(values).sum()


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_sums_of_integers_are_exact(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_sums, "_AT_ONCE", 50)  # several parts
    limit = np.iinfo(dtype).max
    pixels = np.random.default_rng(1).integers(limit - 9, limit, (20, 30, 5), dtype, endpoint=True)
    for number, channel in enumerate(sum_samples(pixels).channels):
        values = [int(value) for value in pixels[:, :, number].ravel()]
        squares = sum(value**2 for value in values)
        assert channel == (600, sum(values), squares, min(values), max(values), 0, 0)


def test_zero_has_no_sign() -> None:
    (channel,) = sum_samples(np.full((2, 2, 1), -0.0, np.float32)).channels
    assert str(channel.low) == str(channel.high) == "0.0"
