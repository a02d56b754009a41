"""How fast a run converted images, from which the next run chooses threads or processes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import inf
from typing import Any

#: Fewer images say little about the speed.
MIN_IMAGES = 500


@dataclass(frozen=True)
class ConversionSpeed:
    """The speed of a conversion. Other programs on the machine hardly change it.

    Attributes:
      processor_seconds: Processor time for each image, in seconds.
      bytes: Mean number of bytes of an original.
    """

    processor_seconds: float
    bytes: float

    def as_json(self) -> dict[str, Any]:
        """Returns the fields as `run.json` stores them."""
        return asdict(self)

    @staticmethod
    def from_json(value: Any) -> ConversionSpeed | None:
        """Reads a stored speed; returns None if there is none, or if it is damaged."""
        try:
            speed = ConversionSpeed(float(value["processor_seconds"]), float(value["bytes"]))
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        return speed if 0 < speed.processor_seconds < inf and 0 <= speed.bytes < inf else None
