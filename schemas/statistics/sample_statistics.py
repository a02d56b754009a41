"""Statistics of the samples of pictures in their own units, and on the scale on which they are trained.

Integers are trained on a scale from 0 to 1, floats as they are: so does the loader with a float type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from shardwright.schemas.pictures import ChannelSamples, Samples
from shardwright.schemas.sample_types import HIGHEST
from shardwright.schemas.statistics.sketches import (
    FLOAT32_BITS,
    FRACTION_BITS,
    Moments,
    rounded,
    square_root,
)

_FLOAT = "float32"
#: Type of samples -> number of its units (those of `Moments.total`) in 1.0 of the scale for training.
_UNITS_IN_ONE: Mapping[str, int] = {**HIGHEST, _FLOAT: 1 << FLOAT32_BITS}
#: Number of color channels. Gray is repeated if other pictures have colors.
_COLORS = 3


@dataclass
class ChannelStatistics:
    """Sums over one channel of some pictures.

    Attributes:
      values: the finite samples.
      nan: number of samples that are NaN.
      infinite: number of samples that are infinite.
      images: number of pictures with a finite sample.
      means: sum of the means of these pictures, in the unit of `values.total` times 2^40.
      mean_squares: sum of their mean squares, in the unit of `values.squares` times 2^40.
    """

    values: Moments
    nan: int = 0
    infinite: int = 0
    images: int = 0
    means: int = 0
    mean_squares: int = 0

    def add(self, samples: ChannelSamples) -> None:
        """Adds the samples of a picture."""
        self.nan += samples.nan
        self.infinite += samples.infinite
        if not samples.finite:
            return
        values = self.values
        values.count += samples.finite
        values.total += samples.total
        values.squares += samples.squares
        values.low, values.high = min(values.low, samples.low), max(values.high, samples.high)
        self.images += 1
        self.means += (samples.total << FRACTION_BITS) // samples.finite
        self.mean_squares += (samples.squares << FRACTION_BITS) // samples.finite

    def merge(self, other: ChannelStatistics) -> None:
        """Adds the sums over other pictures."""
        self.values.merge(other.values)
        for name in ("nan", "infinite", "images", "means", "mean_squares"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def state(self) -> list[Any]:
        """Returns the sums as JSON for `from_state`."""
        sums = self.images, self.means, self.mean_squares
        return [self.values.state(), self.nan, self.infinite, *(format(number, "x") for number in sums)]

    @staticmethod
    def from_state(state: Sequence[Any]) -> ChannelStatistics:
        """Reads the result of `state`."""
        values, nan, infinite, *sums = state
        return ChannelStatistics(Moments.from_state(values), nan, infinite, *(int(text, 16) for text in sums))


class Kind(NamedTuple):
    """What pictures must share so that their samples are added up: the type, and the number of channels."""

    dtype: str
    channels: int


@dataclass
class KindStatistics:
    """Sums over the pictures of one kind.

    Attributes:
      images: number of pictures.
      channels: sums over each channel.
    """

    images: int = 0
    channels: list[ChannelStatistics] = field(default_factory=list)


@dataclass
class SampleStatistics:
    """Sums over the samples of pictures whose records state their type; merged in any order.

    Attributes:
      kinds: kind of pictures -> sums.
    """

    kinds: dict[Kind, KindStatistics] = field(default_factory=dict)

    def add(self, samples: Samples) -> None:
        """Adds a picture."""
        sums = self._of(Kind(samples.dtype, len(samples.channels)))
        sums.images += 1
        for channel, found in zip(sums.channels, samples.channels, strict=True):
            channel.add(found)

    def merge(self, other: SampleStatistics) -> None:
        """Adds the sums over other pictures."""
        for kind, theirs in other.kinds.items():
            mine = self._of(kind)
            mine.images += theirs.images
            for channel, found in zip(mine.channels, theirs.channels, strict=True):
                channel.merge(found)

    def _of(self, kind: Kind) -> KindStatistics:
        if kind not in self.kinds:
            bits = FLOAT32_BITS if kind.dtype == _FLOAT else 0
            made = [ChannelStatistics(Moments(bits)) for _ in range(kind.channels)]
            self.kinds[kind] = KindStatistics(channels=made)
        return self.kinds[kind]

    def images_by_channels(self) -> dict[int, int]:
        """Returns the number of pictures with each number of channels."""
        found: dict[int, int] = {}
        for kind, sums in self.kinds.items():
            found[kind.channels] = found.get(kind.channels, 0) + sums.images
        return found

    def as_json(self) -> dict[str, Any]:
        """Returns the readable form, in the samples' own units: type -> number of channels -> lists."""
        document: dict[str, Any] = {}
        for kind, sums in sorted(self.kinds.items()):
            rows = [channel.values for channel in sums.channels]
            known = [values if values.count else None for values in rows]
            document.setdefault(kind.dtype, {})[str(kind.channels)] = {
                "images": sums.images,
                "mean": [None if values is None else rounded(values.mean) for values in known],
                "std": [None if values is None else rounded(values.deviation) for values in known],
                "min": [None if values is None else rounded(values.low, 9) for values in known],
                "max": [None if values is None else rounded(values.high, 9) for values in known],
                **(
                    {
                        "nan": [channel.nan for channel in sums.channels],
                        "infinite": [channel.infinite for channel in sums.channels],
                    }
                    if kind.dtype == _FLOAT
                    else {}
                ),
            }
        return document

    def scaled_json(self) -> dict[str, Any]:
        """Returns means and deviations over all pictures on the scale for training.

        If all pictures have the same number of channels, each channel counts. Otherwise, if any picture has
        colors, all are read as colors: gray is repeated, and of other channels the first three count.
        """
        counts = {kind.channels for kind in self.kinds}
        number = max(counts) if len(counts) == 1 else _COLORS if max(counts) >= _COLORS else 1
        scale = math.lcm(*(_UNITS_IN_ONE[kind.dtype] for kind in self.kinds))
        totals = [_Scaled() for _ in range(number)]
        for kind, sums in self.kinds.items():
            channels = sums.channels
            chosen = channels[:number] if len(channels) >= number else channels[:1] * number
            for total, channel in zip(totals, chosen, strict=True):
                total.add(channel, scale // _UNITS_IN_ONE[kind.dtype])
        found = [total.moments(scale) for total in totals]
        return {
            "images": sum(sums.images for sums in self.kinds.values()),
            "pixels": sum(_pixels(sums) for sums in self.kinds.values()),
            "mean": [item.mean for item in found],
            "std": [item.std for item in found],
            "per_image": {
                "mean": [item.mean_per_image for item in found],
                "std": [item.std_per_image for item in found],
            },
        }

    def state(self) -> list[Any]:
        """Returns the sums as JSON for `from_state`."""
        return [
            [*kind, sums.images, [channel.state() for channel in sums.channels]]
            for kind, sums in sorted(self.kinds.items())
        ]

    @staticmethod
    def from_state(state: Sequence[Any]) -> SampleStatistics:
        """Reads the result of `state`."""
        return SampleStatistics(
            {
                Kind(dtype, channels): KindStatistics(
                    images, [ChannelStatistics.from_state(item) for item in items]
                )
                for dtype, channels, images, items in state
            }
        )


def _pixels(sums: KindStatistics) -> int:
    channel = sums.channels[0]
    return channel.values.count + channel.nan + channel.infinite


class _Moments(NamedTuple):
    """Mean and deviation over all pixels, and with equal weight for each picture; None without samples."""

    mean: float | None
    std: float | None
    mean_per_image: float | None
    std_per_image: float | None


@dataclass
class _Scaled:
    """Sums over one channel of pictures of several types, in a unit that all types share."""

    count: int = 0
    total: int = 0
    squares: int = 0
    images: int = 0
    means: int = 0
    mean_squares: int = 0

    def add(self, channel: ChannelStatistics, factor: int) -> None:
        """Adds a channel whose unit is `factor` of the shared units."""
        self.count += channel.values.count
        self.total += channel.values.total * factor
        self.squares += channel.values.squares * factor**2
        self.images += channel.images
        self.means += channel.means * factor
        self.mean_squares += channel.mean_squares * factor**2

    def moments(self, scale: int) -> _Moments:
        """Returns the result; `scale` is the number of shared units in 1.0."""
        if not self.count:
            return _Moments(None, None, None, None)
        weight = self.images << FRACTION_BITS
        return _Moments(
            _mean(self.total, self.count, scale),
            _deviation(self.total, self.squares, self.count, scale),
            _mean(self.means, weight, scale),
            _deviation(self.means, self.mean_squares, weight, scale),
        )


def _mean(total: int, weight: int, scale: int) -> float:
    return rounded(total / (weight * scale))


def _deviation(total: int, squares: int, weight: int, scale: int) -> float:
    return rounded(square_root(weight * squares - total * total, weight**2 * scale**2))
