"""Statistics of pictures, computed from sums that can be merged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardwright.schemas.pictures import ImageQuality, Picture
from shardwright.schemas.statistics.sample_statistics import SampleStatistics
from shardwright.schemas.statistics.sketches import FRACTION_BITS, Histogram, Moments, rounded, square_root

_WHOLE = ("boxes_per_image", "bytes", "height", "width")
_SHARES = ("box_area", "box_height", "box_width")
_SCORE = "score."
#: Number of color channels: the first three channels, or the gray one three times.
_COLORS = 3
_WHITE = 255


@dataclass
class ChannelSums:
    """Sums over the channels of pictures with the same number of channels.

    Attributes:
      images: number of pictures.
      pixels: number of their pixels.
      sums: for each channel, the sum of the values from 0 to 255.
      squares: for each channel, the sum of their squares.
      means: for each channel, the sum of the pictures' means, times 2^40.
      mean_squares: for each channel, the sum of the pictures' mean squares, times 2^40.
    """

    images: int = 0
    pixels: int = 0
    sums: list[int] = field(default_factory=list)
    squares: list[int] = field(default_factory=list)
    means: list[int] = field(default_factory=list)
    mean_squares: list[int] = field(default_factory=list)

    def add(self, quality: ImageQuality) -> None:
        """Adds a picture."""
        means, mean_squares = (
            [(value << FRACTION_BITS) // quality.pixels for value in values]
            for values in (quality.sums, quality.squares)
        )
        self.merge(
            ChannelSums(1, quality.pixels, list(quality.sums), list(quality.squares), means, mean_squares)
        )

    def merge(self, other: ChannelSums) -> ChannelSums:
        """Adds the sums over other pictures with the same number of channels; returns itself."""
        self.images += other.images
        self.pixels += other.pixels
        for name in ("sums", "squares", "means", "mean_squares"):
            mine, others = getattr(self, name), getattr(other, name)
            setattr(self, name, [a + b for a, b in zip(mine, others)] if mine else list(others))
        return self

    def colors(self, number: int) -> ChannelSums:
        """Returns the sums for another number of channels: of the first channels, or of gray repeated."""
        return ChannelSums(
            self.images,
            self.pixels,
            *(
                list(values[:number]) if len(values) >= _COLORS else list(values[:1]) * number
                for values in (self.sums, self.squares, self.means, self.mean_squares)
            ),
        )

    def as_json(self) -> dict[str, Any]:
        """Returns means and deviations on a scale from 0 to 1: over all pixels, and per image."""
        if not self.pixels:
            return {"images": self.images, "pixels": 0}
        return {
            "images": self.images,
            "pixels": self.pixels,
            **_mean_and_std(self.sums, self.squares, self.pixels),
            "per_image": _mean_and_std(self.means, self.mean_squares, self.images << FRACTION_BITS),
        }


def _mean_and_std(sums: Sequence[int], squares: Sequence[int], weight: int) -> dict[str, list[float]]:
    return {
        "mean": [rounded(total / (weight * _WHITE)) for total in sums],
        "std": [
            rounded(square_root(weight * square - total * total, weight**2 * _WHITE**2))
            for total, square in zip(sums, squares)
        ],
    }


@dataclass
class PictureStatistics:
    """Sums over some pictures; any number of them can be merged, in any order.

    Attributes:
      of_class: whether it is about a class, for which fewer statistics are kept.
      records: number of pictures.
      unlabelled: number of pictures without a class.
      boxes: number of objects in them.
      formats: format detected from the bytes -> pictures.
      spreads: name -> moments or histogram of its values.
      channels: number of channels -> sums over the pictures with that number.
      samples: instead of `channels`, sums over the pictures whose records state the type of their samples.
    """

    of_class: bool = False
    records: int = 0
    unlabelled: int = 0
    boxes: int = 0
    formats: dict[str, int] = field(default_factory=dict)
    spreads: dict[str, Moments] = field(default_factory=dict)
    channels: dict[int, ChannelSums] = field(default_factory=dict)
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
        if picture.quality is not None and picture.quality.samples is not None:
            self.samples.add(picture.quality.samples)
        elif picture.quality is not None and picture.quality.pixels:
            self.channels.setdefault(len(picture.quality.sums), ChannelSums()).add(picture.quality)
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
        for number, sums in other.channels.items():
            self.channels.setdefault(number, ChannelSums()).merge(sums)
        self.samples.merge(other.samples)
        return self

    def pixels(self) -> ChannelSums | None:
        """Returns the sums over all pixels; None if no pixels were measured.

        If any picture has colors, all are read as colors, and transparency is ignored.
        """
        if not self.channels:
            return None
        number = _COLORS if max(self.channels) >= _COLORS else 1
        all_ = ChannelSums()
        for sums in self.channels.values():
            all_.merge(sums.colors(number))
        return all_

    def _pixels_json(self) -> dict[str, Any] | None:
        """Returns means and deviations on the scale for training; None if no pixels were measured."""
        if self.samples.kinds:  # all records of a dataset state the type of their samples, or none does
            return self.samples.scaled_json()
        pixels = self.pixels()
        return None if pixels is None else pixels.as_json()

    def as_json(self, scores: Sequence[str] = ()) -> dict[str, Any]:
        """Returns the readable form.

        Args:
          scores: names of the scores of the pictures.
        """
        channels = {number: sums.images for number, sums in self.channels.items()}
        for number, images in self.samples.images_by_channels().items():
            channels[number] = channels.get(number, 0) + images
        pixels = self._pixels_json()
        document: dict[str, Any] = {
            "bytes": self._spread("bytes") | {"sum": self.spreads["bytes"].sum if self.records else 0},
            "channels": {str(number): images for number, images in sorted(channels.items())},
            "formats": dict(sorted(self.formats.items())),
            "records": self.records,
            **({} if pixels is None else {"pixels": pixels}),
            **{name: self._spread(name) for name in ("aspect_ratio", "height", "width")},
        }
        if self.of_class:
            return dict(sorted(document.items()))
        if self.samples.kinds:
            document["samples"] = self.samples.as_json()
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

    def state(self) -> dict[str, Any]:
        """Returns the sums as JSON for `from_state`."""
        return {
            "of_class": self.of_class,
            "records": self.records,
            "unlabelled": self.unlabelled,
            "boxes": self.boxes,
            "formats": dict(sorted(self.formats.items())),
            "spreads": {name: spread.state() for name, spread in sorted(self.spreads.items())},
            "channels": {
                str(number): [
                    sums.images, sums.pixels, sums.sums, sums.squares, sums.means, sums.mean_squares
                ]
                for number, sums in sorted(self.channels.items())
            },
            **({"samples": self.samples.state()} if self.samples.kinds else {}),
        }  # fmt: skip

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> PictureStatistics:
        """Reads the result of `state`."""
        kind = Moments if state["of_class"] else Histogram
        return PictureStatistics(
            of_class=state["of_class"],
            records=state["records"],
            unlabelled=state["unlabelled"],
            boxes=state["boxes"],
            formats=dict(state["formats"]),
            spreads={name: kind.from_state(value) for name, value in state["spreads"].items()},
            channels={int(number): ChannelSums(*value) for number, value in state["channels"].items()},
            samples=SampleStatistics.from_state(state.get("samples", ())),
        )
