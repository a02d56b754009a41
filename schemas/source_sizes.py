"""How large the sources of the written images were: sums that can be added in any order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardwright.schemas.ledger import Entry
from shardwright.schemas.statistics.sketches import Moments

_MEASURES = ("width", "height", "bytes")


class SourceSizes:
    """Least, greatest and mean width, height and number of bytes of some sources.

    Attributes:
      moments: width, height and bytes -> what is known of them.
    """

    def __init__(self) -> None:
        self.moments = {name: Moments() for name in _MEASURES}

    def add(self, entry: Entry) -> None:
        """Adds what a ledger says of one image, if it says anything."""
        found = (entry.source_width, entry.source_height, entry.source_bytes)
        if all(isinstance(value, int) for value in found):
            for moment, value in zip(self.moments.values(), found):
                moment.add(value or 0)

    @property
    def images(self) -> int:
        """Number of images whose source was measured."""
        return self.moments["bytes"].count

    def merge(self, other: SourceSizes) -> SourceSizes:
        """Adds what another has; returns itself."""
        for name, moment in self.moments.items():
            moment.merge(other.moments[name])
        return self

    def state(self) -> dict[str, Any]:
        """Returns all of it as a ledger stores it; nothing where nothing was measured."""
        return {name: moment.state() for name, moment in self.moments.items()} if self.images else {}

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> SourceSizes:
        """Makes one from what `state` returned.

        Raises:
          KeyError, TypeError, ValueError or IndexError: for anything else.
        """
        sizes = SourceSizes()
        if state:
            sizes.moments = {name: Moments.from_state(state[name]) for name in _MEASURES}
        return sizes

    def as_json(self) -> dict[str, Any]:
        """Returns what `run.json` says: number of images, and what each measure adds up to."""
        measured = {
            name: {**moment.as_json(), "sum": int(moment.sum)}
            for name, moment in self.moments.items()
            if moment.count
        }
        return {"images": self.images, **measured}
