"""Moments and histograms of numbers, and counts of values. Parts merged in any order give the same bits.

A `Histogram` counts numbers in bins with fixed edges: each power of two is divided into 128 equal parts, as
in HdrHistogram (hdrhistogram.org). So it needs no logarithm, which processors round differently, quantiles
are accurate to 0.4 %, and each integer below 256 has its own bin. All sums are integers, so they are exact in
any order.

A `ValueCounts` counts values while there are few of them. If there are more, it keeps the smallest hashes,
from which it estimates the number of distinct values (Bar-Yossef et al., "Counting distinct elements in a
data stream", 2002).
"""

from __future__ import annotations

import base64
import copy
import hashlib
import heapq
import math
import struct
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Self

#: Number of binary digits after the point in sums of shares and ratios.
FRACTION_BITS = 40
#: Number of such digits with which sums of 32-bit floats are exact.
FLOAT32_BITS = 149

_PARTS = 128
_OFFSET = 1100  # makes the exponent of every float positive
_QUANTILES = {"p01": 0.01, "p05": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95, "p99": 0.99}
_MAX_BUCKETS = 32


def bin_of(value: float) -> int:
    """Returns the bin of a finite number. Bins are in the order of their numbers, and the bin of 0 is 0."""
    if not value:
        return 0
    mantissa, exponent = math.frexp(value if value > 0 else -value)
    place = (exponent + _OFFSET) * _PARTS + int((mantissa - 0.5) * (2 * _PARTS))
    return place if value > 0 else -place


def bin_edges(place: int, parts: int = _PARTS) -> tuple[float, float]:
    """Returns the numbers between which a bin lies. It contains the one nearer to 0, but not the other.

    Args:
      place: Number of the bin.
      parts: Number of parts of each power of two, if it differs from that of `bin_of`.
    """
    if not place:
        return 0.0, 0.0
    exponent, part = divmod(abs(place), parts)
    inner, outer = (_scaled(0.5 + number / (2 * parts), exponent - _OFFSET) for number in (part, part + 1))
    return (inner, outer) if place > 0 else (-outer, -inner)


def _scaled(mantissa: float, exponent: int) -> float:
    try:
        return math.ldexp(mantissa, exponent)
    except OverflowError:
        return sys.float_info.max


def square_root(numerator: int, denominator: int) -> float:
    """Returns the square root of a fraction of integers of any size; 0 for a negative fraction."""
    if numerator <= 0:
        return 0.0
    try:
        return math.sqrt(numerator / denominator)
    except OverflowError:  # the square does not fit into a float, but its root does
        return float(math.isqrt(numerator // denominator))


def rounded(value: float, digits: int = 6) -> float:
    """Rounds to a number of significant digits; integers stay integers."""
    return value if isinstance(value, int) else float(f"{value:.{digits}g}")


@dataclass
class Sums:
    """Base of dataclasses of sums over some things; those over others are added field by field."""

    def merge(self, other: Self) -> Self:
        """Adds the sums over others, which do not change; returns itself."""
        for item in fields(self):
            setattr(self, item.name, _merged(getattr(self, item.name), getattr(other, item.name)))
        return self


def _merged(mine: Any, other: Any) -> Any:
    """Returns the sum of two values. Names and switches are the same in both."""
    if mine is None or other is None or isinstance(mine, bool | str):
        return mine
    if isinstance(mine, int | tuple):
        return mine + other
    if isinstance(mine, Counter):
        mine.update(other)
        return mine
    if isinstance(mine, list):
        return [_merged(*pair) for pair in zip(mine, other, strict=True)]
    if isinstance(mine, dict):
        for key, item in other.items():
            mine[key] = _merged(mine[key], item) if key in mine else copy.deepcopy(item)
        return mine
    return mine.merge(other)


class Buckets(NamedTuple):
    """A histogram. It has one more edge than counts, and the last bucket includes its upper edge."""

    edges: list[float]
    counts: list[int]


@dataclass(slots=True)
class Moments:
    """Count, exact sums, minimum and maximum of some numbers.

    Attributes:
      bits: Number of binary digits after the point of the sums; 0 for integers.
      count: Number of numbers.
      total: Their sum, times 2^bits.
      squares: The sum of their squares, times 2^(2 bits).
      low: The minimum.
      high: The maximum.
    """

    bits: int = 0
    count: int = 0
    total: int = 0
    squares: int = 0
    low: float = math.inf
    high: float = -math.inf

    def add(self, value: float) -> None:
        """Adds a finite number; it is an integer if `bits` is 0."""
        if self.bits:
            value = float(value) + 0.0  # this removes other types of numbers, and -0.0
            numerator, denominator = value.as_integer_ratio()
            fixed = (numerator << self.bits) // denominator
        else:
            fixed = int(value)
        self.count += 1
        self.total += fixed
        self.squares += fixed * fixed
        if value < self.low:
            self.low = value
        if value > self.high:
            self.high = value

    def merge(self, other: Self) -> Self:
        """Adds the numbers of another; returns itself."""
        self.count += other.count
        self.total += other.total
        self.squares += other.squares
        self.low = min(self.low, other.low)
        self.high = max(self.high, other.high)
        return self

    @property
    def mean(self) -> float:
        """The mean, correctly rounded; 0 if there are no numbers."""
        return self.total / (self.count << self.bits) if self.count else 0.0

    @property
    def deviation(self) -> float:
        """The standard deviation of these numbers (population, not sample)."""
        if not self.count:
            return 0.0
        return square_root(
            self.count * self.squares - self.total * self.total, self.count**2 << 2 * self.bits
        )

    @property
    def sum(self) -> float:
        """The sum; an integer if all numbers are integers."""
        return self.total / (1 << self.bits) if self.bits else self.total

    def summary(self) -> dict[str, Any]:
        """Returns the readable form: count, mean, deviation, minimum and maximum."""
        if not self.count:
            return {"count": 0}
        return {
            "count": self.count,
            "max": rounded(self.high),
            "mean": rounded(self.mean),
            "min": rounded(self.low),
            "std": rounded(self.deviation),
        }

    def as_json(self) -> list[Any]:
        """Returns the numbers as they are stored."""
        if not self.count:
            return [self.bits]
        # Decimal digits of large numbers take long, and Python limits their count.
        return [self.bits, self.count, f"{self.total:x}", f"{self.squares:x}", self.low, self.high]

    @classmethod
    def from_json(cls, state: list[Any]) -> Self:
        """Reads the result of `as_json`."""
        sketch = cls(int(state[0]))
        if len(state) > 1:
            count, total, squares, low, high = state[1:6]
            sketch.count, sketch.low, sketch.high = count + 0, low + 0, high + 0  # they have to be numbers
            sketch.total, sketch.squares = int(total, 16), int(squares, 16)
        return sketch


@dataclass
class Histogram(Moments):
    """The distribution of numbers: their moments, and the count of each bin.

    Attributes:
      bins: Number of the bin -> count.
    """

    bins: Counter[int] = field(default_factory=Counter)

    def add(self, value: float) -> None:
        """Adds a finite number; it is an integer if `bits` is 0."""
        super().add(value)
        self.bins[bin_of(value)] += 1

    def merge(self, other: Self) -> Self:
        """Adds the numbers of another; returns itself."""
        super().merge(other)
        self.bins.update(other.bins)
        return self

    @property
    def zeros(self) -> int:
        """Number of zeros."""
        return self.bins[0]

    def quantiles(self, shares: Iterable[float]) -> list[float]:
        """Returns quantiles, accurate to 0.4 %, as defined by NumPy's `quantile`."""
        places = sorted(self.bins)
        ends = list(accumulate(self.bins[place] for place in places))

        def at(rank: int) -> float:
            if rank in (0, self.count - 1):
                return self.high if rank else self.low
            return self._middle(places[bisect_right(ends, rank)])

        quantile_values = []
        for share in shares:
            rank, part = divmod(share * (self.count - 1), 1)
            value = at(int(rank))
            if part:
                value = value * (1 - part) + at(int(rank) + 1) * part
            quantile_values.append(value)
        return quantile_values

    def _middle(self, place: int) -> float:
        low, high = bin_edges(place)
        if not place:
            return 0
        if self.bits:
            middle = low + (high - low) / 2
        elif place > 0:  # the integers low <= n < high
            middle = (math.ceil(low) + math.ceil(high) - 1) // 2
        else:  # the integers low < n <= high
            middle = -((math.ceil(-high) + math.ceil(-low) - 1) // 2)
        return min(max(middle, self.low), self.high)

    def buckets(self) -> Buckets:
        """Returns a histogram of at most 32 buckets, which are narrower for small numbers."""
        if not self.count or self.low == self.high:
            return Buckets([self.low] * 2, [self.count]) if self.count else Buckets([], [])
        places = sorted(place for place in self.bins if place > 0)
        parts, step = _PARTS, 1
        while parts > 1 and places and places[-1] // step - places[0] // step >= _MAX_BUCKETS - 1:
            parts, step = parts // 2, step * 2
        counts: Counter[int] = Counter()
        for place in places:
            counts[place // step] += self.bins[place]
        edges: list[float] = []
        numbers: list[int] = []
        if self.bins.keys() - set(places):
            edges.append(min(self.low, 0))
            numbers.append(sum(times for place, times in self.bins.items() if place <= 0))
        if places:
            span = range(places[0] // step, places[-1] // step + 1)
            edges += [bin_edges(place, parts)[0] for place in span]
            numbers += [counts[place] for place in span]
            edges.append(bin_edges(span[-1], parts)[1])
        else:
            edges.append(self.high)
        return Buckets([rounded(edge) for edge in edges], numbers)

    def equal_buckets(self, low: float, high: float, number: int) -> Buckets:
        """Returns a histogram with buckets of equal width; the middle of a bin decides its bucket.

        Args:
          low: Lower edge of the first bucket.
          high: Upper edge of the last bucket.
          number: Number of buckets.
        """
        width = high / number - low / number
        counts = [0] * number
        for place, times in self.bins.items():
            # Uses halves, because the difference of two large floats may not fit into a float.
            distance = (self._middle(place) / 2 - low / 2) / (width / 2) if width / 2 else 0.0
            counts[min(max(int(distance), 0), number - 1)] += times
        return Buckets([*(low + width * i for i in range(number)), high], counts)

    def summary(self, shares: bool = False) -> dict[str, Any]:
        """Returns the readable form, with quantiles and a histogram.

        Args:
          shares: Whether the numbers lie between 0 and 1; buckets then have equal widths.
        """
        if not self.count:
            return {"count": 0}
        between = shares and self.low >= 0 and self.high <= 1
        edges, counts = self.equal_buckets(0, 1, 20) if between else self.buckets()
        median, *quantiles = self.quantiles([0.5, *_QUANTILES.values()])
        return {
            **super().summary(),
            "histogram": {"counts": counts, "edges": [rounded(edge) for edge in edges]},
            "median": rounded(median),
            "quantiles": {name: rounded(value) for name, value in zip(_QUANTILES, quantiles)},
        }

    def as_json(self) -> list[Any]:
        """Returns the numbers as they are stored."""
        bins = sorted(self.bins.items())
        places = [place for place, _ in bins]
        steps = [*places[:1], *(after - before for before, after in pairwise(places))]
        return [*super().as_json(), *([steps, [times for _, times in bins]] if bins else [])]

    @classmethod
    def from_json(cls, state: list[Any]) -> Self:
        """Reads the result of `as_json`."""
        sketch = super().from_json(state)
        if len(state) > 1:
            sketch.bins = Counter(dict(zip(accumulate(state[6]), state[7])))
        return sketch


_VALUE_BYTES = 64
#: With this many hashes, the estimate is accurate to about 3 %.
_MAX_HASHES = 1024


@dataclass(slots=True, eq=False)
class ValueCounts:
    """The occurrences of each distinct value, or an estimate of the number of values if there are too many.

    Attributes:
      most: Maximum number of distinct values to count, of 64 bytes each on average.
      counts: Value -> occurrences; None if there are too many values.
      hashes: The smallest hashes of the values, if there are too many values.
      total_bytes: Number of bytes of the values that are counted.
    """

    most: int
    counts: dict[bytes, int] | None = field(default_factory=dict)
    hashes: set[int] = field(default_factory=set)
    total_bytes: int = 0

    def add(self, value: bytes, times: int = 1) -> None:
        """Adds a value."""
        if self.counts is None:
            self.hashes.add(_hash(value))
            if len(self.hashes) >= 2 * _MAX_HASHES:
                self._trim()
            return
        count = self.counts.get(value, 0)
        self.counts[value] = count + times
        if not count:
            self.total_bytes += len(value)
            # Depends on the set of all values, so the order in which they come does not matter.
            if len(self.counts) > self.most or self.total_bytes > self.most * _VALUE_BYTES:
                self._overflow()

    def _overflow(self) -> None:
        self.hashes, self.counts = set(map(_hash, self.counts or ())), None
        self._trim()

    def _trim(self) -> None:
        if len(self.hashes) > _MAX_HASHES:
            self.hashes = set(heapq.nsmallest(_MAX_HASHES, self.hashes))

    def merge(self, other: ValueCounts) -> ValueCounts:
        """Adds the values of another; returns itself."""
        if other.counts is None:
            if self.counts is not None:
                self._overflow()
            self.hashes |= other.hashes
            self._trim()
        else:
            for value, times in other.counts.items():
                self.add(value, times)
        return self

    @property
    def unique(self) -> int:
        """Number of distinct values; an estimate if there are too many to count."""
        if self.counts is not None:
            return len(self.counts)
        self._trim()
        if len(self.hashes) < _MAX_HASHES:
            return len(self.hashes)
        return round((_MAX_HASHES - 1) * 2**64 / max(self.hashes))

    def most_common(self) -> Iterator[tuple[bytes, int]]:
        """Yields values and their occurrences, the most frequent first; none if there are too many values."""
        yield from sorted((self.counts or {}).items(), key=lambda item: (-item[1], item[0]))

    def as_json(self) -> dict[str, Any]:
        """Returns the counts as they are stored."""
        if self.counts is None:
            self._trim()
            packed = struct.pack(f"<{len(self.hashes)}Q", *sorted(self.hashes))
            return {"most": self.most, "hashes": base64.b64encode(packed).decode()}
        # Latin-1 decodes any bytes, and ASCII values stay readable.
        return {
            "most": self.most,
            "counts": {value.decode("latin-1"): times for value, times in sorted(self.counts.items())},
        }

    @staticmethod
    def from_json(state: Mapping[str, Any]) -> ValueCounts:
        """Reads the result of `as_json`."""
        most = int(state["most"])
        if "hashes" in state:
            packed = base64.b64decode(state["hashes"])
            return ValueCounts(most, None, set(struct.unpack(f"<{len(packed) // 8}Q", packed)))
        counts = {value.encode("latin-1"): int(times) for value, times in state["counts"].items()}
        return ValueCounts(most, counts, total_bytes=sum(map(len, counts)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueCounts) and self.as_json() == other.as_json()


def _hash(value: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "little")
