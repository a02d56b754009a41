"""Sizes of the sources of the written images, as sums that can be added in any order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardwright.schemas.ledger import Entry
from shardwright.schemas.statistics.sketches import Moments

_MEASURES = ("width", "height", "bytes")


class SourceSizes:
    """Minimum, maximum and mean of width, height and number of bytes of some sources.

    Attributes:
      moments: width, height and bytes -> the moments of their values.
    """

    def __init__(self) -> None:
        self.moments = {name: Moments() for name in _MEASURES}

    def add(self, entry: Entry) -> None:
        """Adds the sizes in an entry of a ledger, if it has any."""
        width, height, size = entry.source_width, entry.source_height, entry.source_bytes
        if isinstance(width, int) and isinstance(height, int) and isinstance(size, int):
            moments = self.moments
            moments["width"].add(width or 0)
            moments["height"].add(height or 0)
            moments["bytes"].add(size or 0)

    @property
    def images(self) -> int:
        """Number of images with known sizes."""
        return self.moments["bytes"].count

    def merge(self, other: SourceSizes) -> SourceSizes:
        """Adds the sizes of others; returns itself."""
        for name, moment in self.moments.items():
            moment.merge(other.moments[name])
        return self

    def state(self) -> dict[str, Any]:
        """Returns the form that a ledger stores; empty if there are no sizes."""
        return {name: moment.state() for name, moment in self.moments.items()} if self.images else {}

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> SourceSizes:
        """Reads the result of `state`.

        Raises:
          KeyError, TypeError, ValueError or IndexError: if it is not such a result.
        """
        sizes = SourceSizes()
        if state:
            sizes.moments = {name: Moments.from_state(state[name]) for name in _MEASURES}
        return sizes

    def as_json(self) -> dict[str, Any]:
        """Returns the entry for `run.json`: the number of images, and the moments of each measure."""
        measured = {
            name: {**moment.as_json(), "sum": int(moment.sum)}
            for name, moment in self.moments.items()
            if moment.count
        }
        return {"images": self.images, **measured}
