"""Divides images into parts by their hashes: into splits, and into the folds of a split."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from typing import NamedTuple

from shardwright.core.plan.assign import hash64, ideal_bounds
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.part_bounds import BUCKETS, DIGITS, PartBounds

#: Uses of hashes: those of each use are independent of the others.
SPLIT, FOLD = "split", "fold"


class HashedImage(NamedTuple):
    """An image to divide.

    Attributes:
      scope: What is divided (`PartBounds`); None if the image only counts for a limit.
      label: Its class; several are joined.
      value: Hash of its group or key.
    """

    scope: str | None
    label: str
    value: int


class Divider:
    """Returns the part of each image, by the hash of its key or group.

    Args:
      settings: Checked settings.
      purpose: `SPLIT` or `FOLD`.
      found: Chosen bounds; None to divide all hashes by the shares.
    """

    def __init__(self, settings: ConvertSettings, purpose: str, found: PartBounds | None = None) -> None:
        self._seed, self._purpose = settings.seed, purpose
        self._uniform = ideal_bounds(shares_of(settings, purpose))
        self._by_class = settings.split_mode == "stratified"
        self._found = found or PartBounds()

    def part(self, group: str, scope: str, label: str) -> int:
        """Returns the number of the part of an image.

        Args:
          group: Its group, or its key.
          scope: What is divided.
          label: Its class.
        """
        value = hash64(self._seed, self._purpose, group)
        buckets = self._found.buckets.get(scope)
        if buckets is not None:
            return DIGITS.index(buckets[value * BUCKETS >> 64])
        classes = self._found.bounds.get(scope)
        if not classes:
            return bisect_right(self._uniform, value)
        # A file that is not a candidate may have a class of its own.
        return bisect_right(classes.get(label if self._by_class else "", self._uniform), value)


def shares_of(settings: ConvertSettings, purpose: str) -> tuple[Fraction, ...]:
    """Returns the shares of the parts: those of the splits, or equal ones of the folds."""
    if purpose == SPLIT:
        return tuple(settings.parsed_splits.values())
    return (Fraction(1, settings.folds),) * settings.folds
