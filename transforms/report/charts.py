"""Charts of numbers, drawn by matplotlib as SVG that uses the page's colors and fonts.

Charts contain no names from the data, because matplotlib would read some of them as formulas. Each chart is
as wide as a phone, so that its text is never scaled down. Wide screens show several side by side.
"""

from __future__ import annotations

import io
import logging
import math
import re
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from shardwright.schemas.units import counted, format_size

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
#: Size in inches at 72 units per inch: 340 x 230 units, in which text has its size in CSS pixels.
_SIZE = (340 / 72, 230 / 72)
_WIDE = (900 / 72, 240 / 72)
_FONT = 11
_LABEL_HEIGHT = 1.25 * _FONT
_WIDTH_OF_DIGIT = 0.64 * _FONT
#: Placeholder colors. The page replaces them by its own, which differ by day and night.
_INK, _FAINT, _MAIN, _SOFT = "#010101", "#020202", "#030303", "#040404"
_BAD, _CARD = "#050505", "#060606"
_VARIABLES = {
    _INK: "--ink-2", _FAINT: "--line", _MAIN: "--c0", _SOFT: "--c0-soft", _BAD: "--error", _CARD: "--card",
}  # fmt: skip
#: Groups of matplotlib's settings that affect these charts.
_DRAWN = (
    "axes", "figure", "font", "grid", "lines", "mathtext", "patch", "path", "savefig", "scatter", "svg",
    "text", "xaxis", "xtick", "yaxis", "ytick",
)  # fmt: skip
#: Guards matplotlib's settings, which apply to the whole process.
_ALONE = threading.Lock()
_FONT_STYLE = re.compile(r"font: ([\d.]+)px [^;]*")
#: Largest number of points that are drawn in a scatter plot and in a curve.
_MAX_POINTS = 400
_MAX_DOTS = 60
_TABLE_ROWS = 24


class Chart(NamedTuple):
    """A chart and the same numbers as a table.

    Attributes:
      title: Title of the chart.
      summary: Sentence that says what the chart shows.
      svg: The drawing. It is safe to embed, because it contains only numbers from the data.
      head: Head of the table.
      rows: Rows of the table.
    """

    title: str
    summary: str
    svg: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def _draw(name: str, plot: Callable[[Any], None], size: tuple[float, float] = _SIZE) -> str:
    """Draws a chart as an SVG element.

    Args:
      name: Prefix that distinguishes the ids of this chart from those of the page's other charts.
      plot: Function that draws on matplotlib's Axes.
      size: Size in inches.
    """
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # it logs about its cache
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: dict[str, Any] = {
        "svg.fonttype": "none", "svg.hashsalt": name, "font.size": _FONT, "axes.edgecolor": _FAINT,
        "axes.labelcolor": _INK, "xtick.color": _INK, "ytick.color": _INK, "text.color": _INK,
        "xtick.major.size": 0, "ytick.major.size": 0, "xtick.minor.size": 0, "ytick.minor.size": 0,
        "grid.color": _FAINT, "grid.linewidth": 0.8, "axes.axisbelow": True, "axes.unicode_minus": False,
        "axes.labelsize": _FONT, "path.simplify": False, "font.family": ["DejaVu Sans"],
    }  # fmt: skip
    buffer = io.BytesIO()
    # A user's own matplotlib defaults are ignored here and left unchanged.
    defaults: Any = matplotlib.rcParamsDefault
    plain = {name: defaults[name] for name in defaults if name.partition(".")[0] in _DRAWN}
    with _ALONE, matplotlib.rc_context(plain | style):
        figure = Figure(figsize=size)
        axes: Any = figure.add_subplot()
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.grid(axis="y")
        plot(axes)
        _leave_room_for_labels(figure, axes)
        FigureCanvasSVG(figure).print_svg(
            buffer, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    return _for_page(buffer.getvalue(), name)


def _leave_room_for_labels(figure: Any, axes: Any) -> None:
    """Sets the margins of a chart.

    matplotlib could measure all labels, which takes a third of the time of a chart, but the page chooses the
    font. The numbers beside the axis vary most, so their number of characters counts.
    """
    low, high = axes.get_ylim()
    ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
    numbers = axes.yaxis.get_major_formatter().format_ticks(ticks)
    left = _WIDTH_OF_DIGIT * max(map(len, numbers), default=0) + _LABEL_HEIGHT + 11
    width, height = figure.get_size_inches() * 72
    figure.subplots_adjust(
        left=left / width,
        right=1 - 0.8 * _FONT / width,
        bottom=(2 * _LABEL_HEIGHT + 8) / height,
        top=1 - 0.8 * _FONT / height,
    )


def _for_page(svg: bytes, name: str) -> str:
    """Removes from matplotlib's SVG what a page does not need, and leaves colors and fonts to the page."""
    root = ET.fromstring(svg)
    for child in list(root):
        if child.tag == f"{{{_SVG}}}metadata":
            root.remove(child)
    for element in list(root.iter(f"{{{_SVG}}}g")):
        for child in list(element):
            if child.get("id") in ("patch_1", "patch_2"):  # the white background of figure and axes
                element.remove(child)
    for element in root.iter():
        if element.tag == f"{{{_SVG}}}g":
            element.attrib.pop("id", None)  # nothing refers to it
        if element.tag == f"{{{_SVG}}}defs":
            for child in [child for child in element if child.tag == f"{{{_SVG}}}style"]:
                element.remove(child)
        if "id" in element.attrib:
            element.set("id", f"{name}-{element.attrib['id']}")
        for key in (f"{{{_XLINK}}}href", "clip-path"):
            if key in element.attrib:
                value = element.attrib.pop(key).replace("#", f"#{name}-")
                element.set("href" if key != "clip-path" else key, value)
        if "style" in element.attrib:
            text = _FONT_STYLE.sub(r"font-size: \1px", element.attrib["style"])
            for color, variable in _VARIABLES.items():
                text = text.replace(color, f"var({variable})")
            element.set("style", text)
        if "d" in element.attrib:
            element.set("d", " ".join(element.attrib["d"].split()))
        element.text = (element.text or "").strip() or None
        element.tail = None
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("aria-hidden", "true")
    root.set("focusable", "false")
    root.set("class", "chart")
    ET.register_namespace("", _SVG)
    text = ET.tostring(root, encoding="unicode")
    return text.replace(f' xmlns="{_SVG}"', "", 1)


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

    def plot(axes: Any) -> None:
        x, y = [place + 1 for place in places], [ordered[place] for place in places]
        axes.fill_between(x, y, [0.8 if log else 0] * len(y), color=_SOFT, step="mid", linewidth=0)
        axes.step(x, y, color=_MAIN, linewidth=1.8, where="mid")
        if log:
            axes.set_yscale("log")
        axes.set_ylim(bottom=0.8 if log else 0)
        axes.set_xlim(0.5, count + 0.5)
        _whole(axes)
        axes.yaxis.set_major_formatter(lambda value, _: short(value))
        axes.set_xlabel("class, by number of records")
        axes.set_ylabel("records" + (" (log)" if log else ""))

    shares = (0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1)
    rows = {min(count - 1, int(share * (count - 1))): None for share in shares}
    half = ordered[count // 2]
    return Chart(
        "Records per class",
        f"The largest of {counted(count, 'class')} has {counted(ordered[0], 'record')}, the one in the "
        f"middle {half:,}, the "
        f"smallest {ordered[-1]:,}.",
        _draw("curve", plot),
        ("rank", "records"),
        tuple((f"{place + 1:,}", f"{ordered[place]:,}") for place in rows),
    )


def size_scatter(
    sizes: Sequence[tuple[int, int]], title: str = "Width and height", name: str = "sizes"
) -> Chart:
    """Draws the width and height of images as points.

    Args:
      sizes: Sizes of the images.
      title: Title of the chart.
      name: Prefix that distinguishes this chart from others.
    """
    sizes = sizes[:_MAX_POINTS]
    number: dict[tuple[int, int], int] = {}
    for size in sizes:
        number[size] = number.get(size, 0) + 1
    widths, heights = zip(*number)

    def plot(axes: Any) -> None:
        area = [18 + 240 * count / len(sizes) for count in number.values()]
        axes.scatter(widths, heights, s=area, color=_SOFT, edgecolors=_MAIN, linewidths=1)
        axes.grid(axis="x")
        most = max(*widths, *heights) * 1.12
        axes.plot([0, most], [0, most], color=_FAINT, linewidth=1, zorder=0)
        axes.set_xlim(0, max(widths) * 1.15)
        axes.set_ylim(0, max(heights) * 1.15)
        _whole(axes)
        axes.set_xlabel("width, pixels")
        axes.set_ylabel("height, pixels")

    common = sorted(number.items(), key=lambda item: (-item[1], item[0]))
    (width, height), most = common[0]
    summary = (
        f"All {len(sizes):,} sampled images are {width} × {height}."
        if len(number) == 1
        else f"{len(sizes):,} sampled images have {len(number):,} sizes; the most frequent is "
        f"{width} × {height} ({most:,} of them). Larger dots stand for more images."
    )
    return Chart(
        title,
        f"{summary} The line is where both sides are equal.",
        _draw(name, plot),
        ("width × height", "images"),
        tuple((f"{w} × {h}", f"{count:,}") for (w, h), count in common[:_TABLE_ROWS]),
    )


class TimePoint(NamedTuple):
    """Number of records at a time.

    Attributes:
      seconds: Time in seconds since the epoch.
      records: Number of records.
      kind: One of `TIME_MARKS`.
    """

    seconds: float
    records: int
    kind: str


#: Mapping of kind of point to its style. Points of versions that never counted lie beside the line.
TIME_MARKS = {
    "published": {"marker": "o", "color": _MAIN, "s": 30},
    "withdrawn": {"marker": "o", "color": _CARD, "edgecolors": _INK, "linewidths": 1.6, "s": 34},
    "refused": {"marker": "x", "color": _BAD, "linewidths": 2, "s": 38},
}


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

    def plot(axes: Any) -> None:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        axes.plot([_day(point) for point in line], [p.records for p in line], color=_MAIN, linewidth=1.6)
        for kind, mark in TIME_MARKS.items():
            of_kind = [point for point in marked if point.kind == kind]
            axes.scatter([_day(p) for p in of_kind], [p.records for p in of_kind], zorder=3, **mark)
        low, high = (limit(point.records for point in [*line, *marked]) for limit in (min, max))
        # A small change must be visible, and must look small.
        axes.set_ylim(0 if low < 0.8 * high else 0.78 * high, max(1, 1.04 * high))
        _whole(axes)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if high < 1e6 else short(value))
        # With a smaller maximum and this minimum, the locator warns that it finds no interval.
        dates = AutoDateLocator(minticks=3, maxticks=8) if wide else AutoDateLocator(minticks=2, maxticks=5)
        axes.xaxis.set_major_locator(dates)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(dates))
        axes.set_ylabel("records")

    shown = published or points
    return Chart(
        "Records over time",
        f"From {shown[0].records:,} to {counted(shown[-1].records, 'record')} in "
        f"{counted(len(shown), 'version')}.",
        _draw("time-wide" if wide else "time", plot, _WIDE if wide else _SIZE),
        ("records",),
        (),
    )


def _day(point: TimePoint) -> float:
    """Returns a time in matplotlib's unit, days since the epoch."""
    return point.seconds / 86_400


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

    total = sum(counts)
    total_text = f"{total:,} {'sampled ' if sampled else ''}{what}"

    def plot(axes: Any) -> None:
        # Bins may span different ranges. All are drawn equally wide, and the edges show what they span.
        axes.bar(range(len(counts)), counts, 0.94, align="edge", color=_MAIN)
        axes.set_xlim(0, len(counts))
        axes.set_ylim(bottom=0)
        ticks = sorted({round(len(counts) * part / 4) for part in range(5)})
        axes.set_xticks(ticks, [text(edges[tick]) for tick in ticks], parse_math=False)
        axes.yaxis.set_major_formatter(lambda value, _: short(value))
        axes.yaxis.get_major_locator().set_params(integer=True)
        for tick, align in ((0, "left"), (-1, "right")):  # keep the outer labels inside
            axes.get_xticklabels()[tick].set_horizontalalignment(align)
        axes.set_xlabel(label)
        axes.set_ylabel(f"sampled {what}" if sampled else what)

    most = max(range(len(counts)), key=lambda place: counts[place])
    rows = [(text_of_bin(low, high), f"{count:,}") for low, high, count in zip(edges, edges[1:], counts)]
    verb = "has" if counts[most] == 1 else "have"
    return Chart(
        title,
        f"Of {total_text}, {counts[most]:,} {verb} {rows[most][0]}, more than in any other bin.",
        _draw(name, plot),
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


def _whole(axes: Any) -> None:
    """Labels both axes with a few whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: short(value))
    if axes.get_yscale() == "linear":
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_formatter(lambda value, _: short(value))
