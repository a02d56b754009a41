"""Bars of numbers and shares, which the page's templates draw as rows of tables.

So a chart is its own table: text keeps its size on every screen, and nothing is drawn twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shardwright.schemas.units import format_size


class Bar(NamedTuple):
    """A row of a chart.

    Attributes:
      text: Text of the row.
      frequency: Number of things in it.
      percent: Length of its bar, as a percentage of the longest.
    """

    text: str
    frequency: int
    percent: float


class Chart(NamedTuple):
    """A chart of a number's distribution.

    Attributes:
      title: Title of the chart.
      label: Name of the number.
      what: What is counted, in the plural.
      bars: Its rows.
    """

    title: str
    label: str
    what: str
    bars: tuple[Bar, ...]


def short(value: float) -> str:
    """Returns a short form of a number: 950, 12.5k, 3M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def histogram(
    title: str, label: str, edges: Sequence[float], counts: Sequence[int], *,
    is_bytes: bool = False, whole: bool = False, what: str = "images",
) -> Chart:  # fmt: skip
    """Returns the distribution of a number as a chart.

    Args:
      title: Title of the chart.
      label: Name of the number.
      edges: Edges of the bins, one more than there are bins.
      counts: Number of images in each bin.
      is_bytes: Whether the number is a number of bytes.
      whole: Whether the numbers are whole, and each bin ends before its second edge.
      what: What is counted, in the plural.
    """

    def text(value: float) -> str:
        return format_size(value) if is_bytes else short(value)

    def text_of_bin(low: float, high: float) -> str:
        if whole and high - low <= 1:
            return text(low)
        return f"{text(low)} to {text(high - 1 if whole else high)}"

    most = max(counts)
    bars = (
        Bar(text_of_bin(low, high), count, round(100 * count / most, 2))
        for low, high, count in zip(edges, edges[1:], counts)
    )
    return Chart(title, label, what, tuple(bars))


def bins_of(values: Sequence[float], count: int = 16) -> tuple[list[float], list[int]]:
    """Counts values in bins of equal width; returns the edges and the counts."""
    low, high = min(values), max(values)
    if low == high:
        low, high = low - max(1.0, abs(low) * 0.05), high + max(1.0, abs(high) * 0.05)
    width = (high - low) / count
    counts = [0] * count
    for value in values:
        counts[min(count - 1, int((value - low) / width))] += 1
    return [low + i * width for i in range(count + 1)], counts
