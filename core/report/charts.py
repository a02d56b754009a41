"""Charts of numbers: places and texts that the macro `plot` of the page's templates draws as SVG.

Each chart is as wide as a phone, so that its text is never scaled down. Wide screens show several side by
side. Colors are those of the page, which differ by day and night.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from shardwright.schemas.units import counted, format_size

#: Width and height in units of the drawing, in which text has its size in CSS pixels.
_SIZE = 340, 230
_WIDE = 900, 240
#: Room for a digit and for a line of text.
_DIGIT, _LINE = 7.0, 14.0
#: Numbers of steps between labels beside an axis, at most.
_STEPS = 5
#: Largest number of points that are drawn in a scatter plot and in a curve.
_MAX_POINTS = 400
_MAX_DOTS = 60
_TABLE_ROWS = 24
_DAY = 86_400


class Tick(NamedTuple):
    """A label beside an axis: its place on the axis, its text, and the part of the text at that place."""

    at: float
    text: str
    anchor: str = "middle"


class Bar(NamedTuple):
    """A bar, with a text that appears when the pointer is on it."""

    x: float
    y: float
    width: float
    height: float
    text: str


class Dot(NamedTuple):
    """A dot, and the name of its kind, which decides its look."""

    x: float
    y: float
    radius: float
    kind: str


class Plot(NamedTuple):
    """The places of everything in a drawing.

    Attributes:
      size: Width and height of the drawing.
      left, top, right, bottom: Sides of the area between the axes.
      x_ticks: Labels below the area.
      y_ticks: Labels left of the area, each with a line through the area.
      x_label: What the horizontal axis shows.
      y_label: What the vertical axis shows.
      bars: Bars of a histogram.
      line: Points of a line, `x,y` each.
      filled: Whether the area below the line is filled.
      guide: Points of a thin line behind everything else.
      dots: Dots.
    """

    size: tuple[int, int]
    left: float
    top: float
    right: float
    bottom: float
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    x_label: str
    y_label: str
    bars: tuple[Bar, ...] = ()
    line: tuple[str, ...] = ()
    filled: bool = False
    guide: tuple[str, ...] = ()
    dots: tuple[Dot, ...] = ()


class Chart(NamedTuple):
    """A chart and the same numbers as a table.

    Attributes:
      name: Prefix that distinguishes its ids from those of the page's other charts.
      title: Title of the chart.
      summary: Sentence that says what the chart shows.
      plot: The drawing.
      head: Head of the table.
      rows: Rows of the table.
    """

    name: str
    title: str
    summary: str
    plot: Plot
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class _Axes:
    """Maps values to places between the axes of a drawing.

    Args:
      x: Least and greatest value on the horizontal axis.
      y: Least and greatest value on the vertical axis.
      y_ticks: Values and texts beside the vertical axis.
      size: Width and height of the drawing.
      log: Whether the vertical axis is logarithmic.
    """

    def __init__(
        self, x: tuple[float, float], y: tuple[float, float], y_ticks: Sequence[tuple[float, str]],
        size: tuple[int, int] = _SIZE, log: bool = False,
    ) -> None:  # fmt: skip
        self._x, self._y = x, tuple(map(math.log10, y)) if log else y
        self._log = log
        self.size = size
        # The page chooses the font, so the number of characters counts.
        self.left = _LINE + 8 + _DIGIT * max((len(text) for _, text in y_ticks), default=0)
        self.top, self.right, self.bottom = 9.0, size[0] - 9.0, size[1] - 2 * _LINE - 8
        self.y_ticks = tuple(Tick(self.y(value), text, "end") for value, text in y_ticks)

    def x(self, value: float) -> float:
        """Returns the place of a value on the horizontal axis."""
        low, high = self._x
        return round(self.left + (value - low) / (high - low) * (self.right - self.left), 2)

    def y(self, value: float) -> float:
        """Returns the place of a value on the vertical axis."""
        low, high = self._y
        share = ((math.log10(value) if self._log else value) - low) / (high - low)
        return round(self.bottom - share * (self.bottom - self.top), 2)

    def point(self, x: float, y: float) -> str:
        """Returns the place of a point as SVG writes it."""
        return f"{self.x(x)},{self.y(y)}"

    def x_tick(self, value: float, text: str) -> Tick:
        """Returns the label of a value on the horizontal axis, inside the drawing."""
        at, half = self.x(value), _DIGIT * len(text) / 2
        anchor = "start" if at - half < 0 else "end" if at + half > self.size[0] else "middle"
        return Tick(at, text, anchor)

    def plot(self, x_ticks: Sequence[tuple[float, str]], x_label: str, y_label: str) -> Plot:
        """Returns a drawing without content."""
        ticks = tuple(self.x_tick(value, text) for value, text in x_ticks)
        return Plot(
            self.size, self.left, self.top, self.right, self.bottom, ticks, self.y_ticks, x_label, y_label
        )


def _whole_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Returns a few round whole numbers between two numbers, with their texts."""
    least = max((high - low) / _STEPS, 1)
    power = 10 ** math.floor(math.log10(least))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)
    numbers = [place * step for place in range(math.ceil(low / step), math.floor(high / step) + 1)]
    texts = [short(number) for number in numbers]
    if len(set(texts)) < len(texts):  # the step is below the precision of the short form
        texts = [f"{number:,}" for number in numbers]
    return list(zip(numbers, texts))


def short(value: float) -> str:
    """Returns a short form of a number: 950, 12.5k, 3M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def class_curve(counts: Sequence[int]) -> Chart:
    """Draws the number of records of each class, the largest first."""
    ordered = sorted(counts, reverse=True)
    count = len(ordered)
    step = max(1, math.ceil(count / _MAX_POINTS))
    places = sorted({*range(0, count, step), count - 1})
    log = ordered[0] > 50 * max(1, ordered[-1])
    if log:
        powers = [10**power for power in range(math.ceil(math.log10(ordered[0])) + 1)]
        low, ticks = 0.8, [(float(power), short(power)) for power in powers if power <= ordered[0]]
    else:
        low, ticks = 0.0, _whole_ticks(0, ordered[0])
    axes = _Axes((0.5, count + 0.5), (low, 1.05 * ordered[0]), ticks, log=log)
    line = []
    for place, following in zip(places, [*places[1:], count]):
        line += [axes.point(end + 0.5, max(low, ordered[place])) for end in (place, following)]
    plot = axes.plot(
        _whole_ticks(1, count), "class, by number of records", f"records{' (log)' if log else ''}"
    )
    shares = (0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)
    rows = {min(count - 1, int(share * (count - 1))): None for share in shares}
    return Chart(
        "curve",
        "Records per class",
        f"The largest of {counted(count, 'class')} has {counted(ordered[0], 'record')}, the one in the "
        f"middle {ordered[count // 2]:,}, the smallest {ordered[-1]:,}.",
        plot._replace(line=tuple(line), filled=True),
        ("rank", "records"),
        tuple((f"{place + 1:,}", f"{ordered[place]:,}") for place in rows),
    )


def size_scatter(
    sizes: Sequence[tuple[int, int]], title: str = "Width and height", name: str = "sizes"
) -> Chart:
    """Draws the width and height of images as dots.

    Args:
      sizes: Sizes of the images.
      title: Title of the chart.
      name: Prefix that distinguishes this chart from others.
    """
    sizes = sizes[:_MAX_POINTS]
    number = Counter(sizes)
    widest, highest = (1.15 * max(sides) for sides in zip(*number))
    axes = _Axes((0, widest), (0, highest), _whole_ticks(0, highest))
    end = min(widest, highest)
    plot = axes.plot(_whole_ticks(0, widest), "width, pixels", "height, pixels")._replace(
        guide=(axes.point(0, 0), axes.point(end, end)),
        dots=tuple(
            Dot(axes.x(width), axes.y(height), round(2.4 + 6.4 * math.sqrt(count / len(sizes)), 1), "size")
            for (width, height), count in number.items()
        ),
    )
    common = sorted(number.items(), key=lambda item: (-item[1], item[0]))
    (width, height), most = common[0]
    summary = (
        f"All {len(sizes):,} sampled images are {width} × {height}."
        if len(number) == 1
        else f"{len(sizes):,} sampled images have {len(number):,} sizes; the most frequent is "
        f"{width} × {height} ({most:,} of them). Larger dots stand for more images."
    )
    return Chart(
        name,
        title,
        f"{summary} The line is where both sides are equal.",
        plot,
        ("width × height", "images"),
        tuple((f"{w} × {h}", f"{count:,}") for (w, h), count in common[:_TABLE_ROWS]),
    )


class TimePoint(NamedTuple):
    """Number of records at a time.

    Attributes:
      seconds: Time in seconds since the epoch.
      records: Number of records.
      kind: `published`, `withdrawn` or `refused`. Refused versions lie beside the line.
    """

    seconds: float
    records: int
    kind: str


def records_over_time(points: Sequence[TimePoint], *, wide: bool) -> Chart:
    """Draws the number of records of a dataset's versions over time.

    Args:
      points: At least one point for each version, the oldest first.
      wide: Whether the chart is for a screen or for a phone.
    """
    published = [point for point in points if point.kind != "refused"]
    step = max(1, math.ceil(len(published) / _MAX_POINTS))
    line = [*published[:-1:step], *published[-1:]]
    # Where dots would touch and form a thick line, only the unusual ones are drawn.
    marked = [point for point in points if point.kind != "published"][-_MAX_POINTS:]
    marked += [point for point in line if point.kind == "published"] if len(line) <= _MAX_DOTS else []
    low, high = (limit(point.records for point in [*line, *marked]) for limit in (min, max))
    # A small change must be visible, and must look small.
    bounds = 0 if low < 0.8 * high else 0.78 * high, max(1, 1.04 * high)
    begin, end = (limit(point.seconds for point in [*line, *marked]) for limit in (min, max))
    margin = 0.03 * (end - begin) or _DAY / 2
    axes = _Axes((begin - margin, end + margin), bounds, _whole_ticks(*bounds), size=_WIDE if wide else _SIZE)
    plot = axes.plot(_time_ticks(begin, end, 6 if wide else 3), "", "records")._replace(
        line=tuple(axes.point(point.seconds, point.records) for point in line),
        dots=tuple(Dot(axes.x(point.seconds), axes.y(point.records), 3.2, point.kind) for point in marked),
    )
    shown = published or points
    return Chart(
        "time-wide" if wide else "time",
        "Records over time",
        f"From {shown[0].records:,} to {counted(shown[-1].records, 'record')} in "
        f"{counted(len(shown), 'version')}.",
        plot,
        ("records",),
        (),
    )


def _time_ticks(begin: float, end: float, count: int) -> list[tuple[float, str]]:
    """Returns times at equal distances, with the date or, within two days, the time of each."""
    form = "%Y-%m-%d" if end - begin > 2 * _DAY else "%m-%d %H:%M"
    ticks: dict[str, float] = {}
    for place in range(count):
        seconds = begin + (end - begin) * place / (count - 1)
        ticks.setdefault(time.strftime(form, time.gmtime(seconds)), seconds)
    return [(seconds, text) for text, seconds in ticks.items()]


def histogram(
    name: str, title: str, label: str, edges: Sequence[float], counts: Sequence[int], *,
    is_bytes: bool = False, sampled: bool = False, whole: bool = False, what: str = "images",
) -> Chart:  # fmt: skip
    """Draws the distribution of a number.

    Args:
      name: Prefix that distinguishes this chart from others.
      title: Title of the chart.
      label: Label of its axis.
      edges: Edges of the bins, one more than there are bins.
      counts: Number of images in each bin.
      is_bytes: Whether the number is a number of bytes.
      sampled: Whether only the sampled images were counted.
      whole: Whether the numbers are whole, and each bin ends before its second edge.
      what: What is counted, in the plural.
    """

    def text(value: float) -> str:
        return format_size(value) if is_bytes else short(value)

    def text_of_bin(low: float, high: float) -> str:
        if whole and high - low <= 1:
            return text(low)
        return f"{text(low)} to {text(high - 1 if whole else high)}"

    # Bins may span different ranges. All are drawn equally wide, and the edges show what they span.
    highest = max(counts)
    axes = _Axes((0, len(counts)), (0, 1.05 * highest), _whole_ticks(0, highest))
    rows = [(text_of_bin(low, high), f"{count:,}") for low, high, count in zip(edges, edges[1:], counts)]
    gap = 0.06 * (axes.x(1) - axes.x(0))
    bars = tuple(
        Bar(
            axes.x(place), axes.y(count), round(axes.x(place + 1) - axes.x(place) - gap, 2),
            round(axes.bottom - axes.y(count), 2), f"{rows[place][0]}: {count:,}",
        )
        for place, count in enumerate(counts) if count
    )  # fmt: skip
    if whole and len(counts) <= _MAX_DOTS:  # a bin with one number has its label in the middle
        every = math.ceil(len(counts) / 12)
        ticks = [(place + 0.5, text(edges[place])) for place in range(0, len(counts), every)]
    else:
        ticks = [
            (place, text(edges[place])) for place in sorted({round(len(counts) * i / 4) for i in range(5)})
        ]
    y_label = f"sampled {what}" if sampled else what
    most = max(range(len(counts)), key=lambda place: counts[place])
    verb = "has" if counts[most] == 1 else "have"
    return Chart(
        name,
        title,
        f"Of {sum(counts):,} {y_label}, {counts[most]:,} {verb} {rows[most][0]}; no other bin has more.",
        axes.plot(ticks, label, y_label)._replace(bars=bars),
        (label, what),
        tuple(rows[:_TABLE_ROWS]),
    )


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
