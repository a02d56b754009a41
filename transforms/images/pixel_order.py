"""What bare pixels tell of themselves where nothing else does: the order of channels, and brightness."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import numpy as np

#: Pictures that are looked at.
PICTURES = 16
#: Values of one that are looked at, those of its upper rows.
_VALUES = 1 << 18
#: How much rougher than the other order pixels have to be; at 32 x 32, photos differ by a factor of 2.
_CLEARLY = 1.25
#: 16-bit pixels up to here, those of 12-bit cameras, are next to black among 65,535.
_DARK = 0x0FFF


def are_planar(pictures: Iterable[tuple[np.ndarray, tuple[int, ...]]]) -> bool:
    """Tells whether the channels of pictures stand one after another, as CIFAR's rows have them.

    Neighbours in a picture are alike: in the wrong order they are not. Where it cannot be told, as of
    noise, pixels are taken to stand one after another.

    Args:
      pictures: the values of each, all in one row, and its (height, width, channels).
    """
    pixels = planes = 0.0
    for values, (height, width, channels) in islice(pictures, PICTURES):
        rows = max(2, _VALUES // (width * channels))
        pixels += _roughness(values.reshape(height, width, channels)[:rows])
        planes += _roughness(np.moveaxis(values.reshape(channels, height, width)[:, :rows], 0, -1))
    return pixels > planes * _CLEARLY  # NaN is not


def _roughness(picture: np.ndarray) -> float:
    """Returns how much neighbours differ, down and across."""
    values = picture.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        return float(sum(np.abs(np.diff(values, axis=axis)).sum() for axis in (0, 1)))


def brightest_if_dark(pictures: Iterable[np.ndarray]) -> int:
    """Returns the highest value of 16-bit pictures that would all come out next to black; else 0.

    Nearly always these are pixels of 8, 10 or 12 bits in a wider type. Wholly black ones say nothing.
    """
    highest = max((int(values.max()) for values in pictures if values.size), default=0)
    return highest if highest <= _DARK else 0
