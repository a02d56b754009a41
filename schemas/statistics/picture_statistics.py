"""Statistics of pictures, computed from sums that can be merged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from shardwright.schemas.pictures import Picture
from shardwright.schemas.statistics.sample_statistics import SampleStatistics
from shardwright.schemas.statistics.sketches import FRACTION_BITS, Histogram, Moments

_WHOLE = ("boxes_per_image", "bytes", "height", "width")
_SHARES = ("box_area", "box_height", "box_width")
_SCORE = "score."


@dataclass
class PictureStatistics:
    """Sums over some pictures; any number of them can be merged, in any order.

    Attributes:
      of_class: Whether it is about a class, for which fewer statistics are kept.
      records: Number of pictures.
      unlabelled: Number of pictures without a class.
      boxes: Number of objects in them.
      formats: Format detected from the bytes -> pictures.
      spreads: Name -> moments or histogram of its values.
      samples: Sums over the samples of the pictures.
    """

    of_class: bool = False
    records: int = 0
    unlabelled: int = 0
    boxes: int = 0
    formats: dict[str, int] = field(default_factory=dict)
    spreads: dict[str, Moments] = field(default_factory=dict)
    samples: SampleStatistics = field(default_factory=SampleStatistics)

    def add(self, picture: Picture) -> None:
        """Adds a picture."""
        self.records += 1
        self.unlabelled += not picture.labels
        self.boxes += len(picture.boxes)
        self.formats[picture.format] = self.formats.get(picture.format, 0) + 1
        self._add("bytes", picture.bytes)
        self._add("width", picture.width)
        self._add("height", picture.height)
        self._add("aspect_ratio", picture.width / max(1, picture.height))
        if picture.quality is not None:
            self.samples.add(picture.quality)
        if self.of_class:
            return
        self._add("megapixels", picture.width * picture.height / 1e6)
        self._add("boxes_per_image", len(picture.boxes))
        for width, height in picture.boxes:
            if width >= 0 and height >= 0 and math.isfinite(width) and math.isfinite(height):
                self._add("box_width", width)
                self._add("box_height", height)
                self._add("box_area", width * height)
        for number, score in enumerate(picture.quality.scores if picture.quality is not None else ()):
            if math.isfinite(score):
                self._add(f"{_SCORE}{number}", score)

    def _add(self, name: str, value: float) -> None:
        spread = self.spreads.get(name)
        if spread is None:
            spread = self.spreads[name] = self._kind()(0 if name in _WHOLE else FRACTION_BITS)
        spread.add(value)

    def _kind(self) -> type[Moments]:
        """Returns the class for numbers: without bins for classes, because there are many classes."""
        return Moments if self.of_class else Histogram

    def merge(self, other: PictureStatistics) -> PictureStatistics:
        """Adds the sums over other pictures; returns itself."""
        self.records += other.records
        self.unlabelled += other.unlabelled
        self.boxes += other.boxes
        for name, count in other.formats.items():
            self.formats[name] = self.formats.get(name, 0) + count
        for name, spread in other.spreads.items():
            if name not in self.spreads:
                self.spreads[name] = self._kind()(spread.bits)
            self.spreads[name].merge(spread)
        self.samples.merge(other.samples)
        return self

    def as_json(self, scores: Sequence[str] = ()) -> dict[str, Any]:
        """Returns the readable form.

        Args:
          scores: Names of the scores of the pictures.
        """
        pixels = self.samples.scaled_json()
        document: dict[str, Any] = {
            "bytes": self._spread("bytes") | {"sum": self.spreads["bytes"].sum if self.records else 0},
            "channels": self.samples.images_by_channels(),
            "formats": dict(sorted(self.formats.items())),
            "records": self.records,
            **({} if pixels is None else {"pixels": pixels}),
            **{name: self._spread(name) for name in ("aspect_ratio", "height", "width")},
        }
        if self.of_class:
            return dict(sorted(document.items()))
        if samples := self.samples.as_json():
            document["samples"] = samples
        document["megapixels"] = self._spread("megapixels")
        document["unlabelled"] = self.unlabelled
        if self.boxes:
            document["boxes"] = {
                "area": self._spread("box_area"),
                "count": self.boxes,
                "height": self._spread("box_height"),
                "per_image": self._spread("boxes_per_image"),
                "width": self._spread("box_width"),
            }
        found = [int(name.removeprefix(_SCORE)) for name in self.spreads if name.startswith(_SCORE)]
        if found:
            document["scores"] = {
                scores[number] if number < len(scores) else f"score_{number}": self._spread(
                    f"{_SCORE}{number}"
                )
                for number in sorted(found)
            }
        return dict(sorted(document.items()))

    def _spread(self, name: str) -> dict[str, Any]:
        spread = self.spreads.get(name)
        if spread is None:
            return {"count": 0}
        if isinstance(spread, Histogram):
            return spread.as_json(shares=name in _SHARES or name.startswith(_SCORE))
        return spread.as_json()
