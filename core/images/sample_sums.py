"""Adds up the samples of a picture exactly, so that statistics do not depend on the order of additions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.schemas.pictures import ChannelSamples, Samples

Array = npt.NDArray[Any]

#: Number of samples that are added up at once. Sums of so many squares of uint16 are exact in float64.
AT_ONCE = 1 << 20
#: Layout of a float32: bits of its fraction, of its exponent, and the bit for normal numbers.
_FRACTION_BITS, _EXPONENTS = 23, 256
_NORMAL = 1 << _FRACTION_BITS
#: Fractions are squared in halves of this many bits, because float64 cannot hold sums of their squares.
_HALF_BITS = 12


def sum_samples(pixels: Array) -> Samples:
    """Returns the exact sums over each channel of a picture.

    Args:
      pixels: HxWxC of uint8, uint16 or float32.
    """
    rows = pixels.reshape(-1, pixels.shape[-1])
    channels = [_channel(rows[:, number]) for number in range(rows.shape[1])]
    return Samples(pixels.dtype.name, tuple(channels))


def _channel(values: Array) -> ChannelSamples:
    count = total = squares = nan = infinite = 0
    low: float = np.inf
    high: float = -np.inf
    for begin in range(0, len(values), AT_ONCE):
        part = np.ascontiguousarray(values[begin : begin + AT_ONCE])
        if part.dtype.kind == "f":
            finite = np.isfinite(part)
            if not finite.all():
                part_nan = int(np.isnan(part).sum())
                nan += part_nan
                infinite += len(part) - int(finite.sum()) - part_nan
                part = part[finite]
        if not len(part):
            continue
        count += len(part)
        zero = part.dtype.type(0)  # turns -0.0 into 0.0
        low, high = min(low, (part.min() + zero).item()), max(high, (part.max() + zero).item())
        found = _sums_of_floats(part) if part.dtype.kind == "f" else _sums_of_integers(part)
        total += found[0]
        squares += found[1]
    if not count:
        low = high = 0
    return ChannelSamples(count, total, squares, low, high, nan, infinite)


def _sums_of_integers(values: Array) -> tuple[int, int]:
    """Returns the sum of values below 2^16 and the sum of their squares."""
    exact = values.astype(np.float64)
    return int(exact.sum()), int(np.dot(exact, exact))


def _sums_of_floats(values: Array) -> tuple[int, int]:
    """Returns the sum of finite float32 times 2^149, and the sum of their squares times 2^298.

    A float32 is a whole number below 2^24 times a power of two. Numbers with the same power are added in
    float64, which is exact for as many as there are.
    """
    bits = values.view(np.uint32)
    powers = (bits >> _FRACTION_BITS) % _EXPONENTS
    fractions = (bits % _NORMAL) + np.where(powers > 0, np.uint32(_NORMAL), np.uint32(0))
    shifts = np.maximum(powers, 1).astype(np.int64) - 1

    def sums(weights: Array) -> list[tuple[int, int]]:
        found = np.bincount(shifts, weights)
        return [(shift, int(found[shift])) for shift in np.flatnonzero(found).tolist()]

    total = sum(part << shift for shift, part in sums(np.copysign(fractions.astype(np.float64), values)))
    upper = (fractions >> _HALF_BITS).astype(np.float64)
    lower = (fractions % (1 << _HALF_BITS)).astype(np.float64)
    squares = 0
    for weights, bits_up in (
        (upper * upper, 2 * _HALF_BITS),
        (upper * lower, _HALF_BITS + 1),
        (lower * lower, 0),
    ):
        squares += sum(part << 2 * shift + bits_up for shift, part in sums(weights))
    return total, squares
