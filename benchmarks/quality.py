"""Measures the difference between pictures."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image

IDENTICAL = 100.0


def psnr(reference: Image.Image, picture: Image.Image) -> float:
    """Computes the peak signal-to-noise ratio of two RGB pictures of equal size.

    Args:
      reference: The correct picture.
      picture: The picture to judge.

    Returns:
      Decibels; equal pictures count as 100, so that means are finite.
    """
    left = np.asarray(reference, dtype=np.float64)
    right = np.asarray(picture, dtype=np.float64)
    error = float(np.mean((left - right) ** 2))
    return IDENTICAL if error == 0 else min(IDENTICAL, 10 * math.log10(255**2 / error))
