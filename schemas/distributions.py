"""The distance of two distributions over names, each given as counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple


class Distance(NamedTuple):
    """The distance of two distributions.

    Attributes:
      l_infinity: largest difference of a name's shares, 0 to 1. TensorFlow Data Validation's drift comparator
        for strings computes the same (`infinity_norm`).
      name: the name with this difference, the first if there are several; empty if there is none.
      jensen_shannon: the Jensen-Shannon distance with logarithms of base 2, 0 to 1: the square root of
        (D(P||M) + D(Q||M)) / 2, where M = (P + Q) / 2 and D is the Kullback-Leibler divergence
        (Endres and Schindelin 2003). It is `scipy.spatial.distance.jensenshannon(p, q, base=2)`; TensorFlow
        Data Validation's `jensen_shannon_divergence` is its square.
    """

    l_infinity: float
    name: str
    jensen_shannon: float


def distance(old: Mapping[str, int], new: Mapping[str, int]) -> Distance:
    """Returns the distance of two distributions; the largest possible one if only one of them is empty."""
    totals = sum(old.values()), sum(new.values())
    if not any(totals):
        return Distance(0.0, "", 0.0)
    if not all(totals):
        return Distance(1.0, "", 1.0)
    largest, widest, terms = 0.0, "", []
    for name in sorted(old.keys() | new.keys()):
        p, q = old.get(name, 0) / totals[0], new.get(name, 0) / totals[1]
        if abs(p - q) > largest:
            largest, widest = abs(p - q), name
        middle = (p + q) / 2
        terms += [share * math.log2(share / middle) / 2 for share in (p, q) if share]
    divergence = min(max(math.fsum(terms), 0.0), 1.0)
    return Distance(largest, widest, math.sqrt(divergence))
