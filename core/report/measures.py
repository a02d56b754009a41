"""Measurements of images and objects for the page: from `statistics.json`, or else from sampled images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardwright.core.report.data import ObjectCounts, ReportData
from shardwright.core.report.samples import ranked
from shardwright.core.report.view import ClassRow, class_rows
from shardwright.schemas.drift_tables import Document, as_mapping
from shardwright.schemas.units import format_size

#: Larger numbers, and values that are not numbers, are not drawn.
_MAX_DRAWN = 1e18
#: Columns of `spread_rows` after the first.
SPREAD_HEADS = ("least", "median", "mean", "greatest", "deviation")
#: Largest number of splits whose channels are listed.
_MAX_SPLITS = 12
#: Samples from here on are not shown; float32 ends before.
_MAX_SAMPLE = 1e39
#: Up to this many bins each have one number of objects; above, a bin has several.
_MOST_BINS = 24
#: Largest number of rows of `sample_rows`.
_MAX_SAMPLE_ROWS = 64


class Bar(NamedTuple):
    """A row of a chart.

    The page's template draws it as a row of a table, so text keeps its size on every screen.

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


def size_charts(data: ReportData) -> list[Chart]:
    """Returns charts of the sizes and bytes of the images: of all if they were measured, else of samples."""
    measured = all_pictures(data.statistics)
    charts = []
    for name, title, label in (
        ("bytes", "Bytes of an image", "bytes"),
        ("width", "Width", "pixels"),
        ("height", "Height", "pixels"),
        ("aspect_ratio", "Width by height", "width / height"),
    ):
        bins = histogram_of(as_mapping(measured.get(name)))
        what = "images"
        if not measured and name != "aspect_ratio":
            values = [float(getattr(facts, name)) for facts in data.sampled]
            bins, what = bins_of(values) if len(set(values)) > 1 else None, "sampled images"
        if bins:
            charts.append(histogram(title, label, *bins, is_bytes=name == "bytes", what=what))
    return charts


def quality_charts(data: ReportData) -> list[Chart]:
    """Returns charts of the quality metrics of the images, if they were measured."""
    measured = all_pictures(data.statistics)
    charts = []
    titles = {"brightness": "Brightness", "sharpness": "Sharpness", "information": "Information"}
    for name, title in titles.items():
        found = histogram_of(as_mapping(as_mapping(measured.get("scores")).get(name)))
        if found:
            charts.append(histogram(title, f"{name}, 0 to 1", *found))
    return charts


class ComparedSizes(NamedTuple):
    """A measurement of the originals beside that of the stored images, as text."""

    what: str
    original: str
    stored: str


def compared_sizes(data: ReportData) -> list[ComparedSizes]:
    """Returns the sizes of the originals and of the stored images; empty if they are not known."""
    measured = all_pictures(data.statistics)
    rows = []
    for name, title in (("width", "width, pixels"), ("height", "height, pixels"), ("bytes", "bytes")):
        original = _range(name, as_mapping(data.sources.get(name)))
        stored = _range(name, as_mapping(measured.get(name)))
        if not stored and data.sampled:
            values = [getattr(facts, name) for facts in data.sampled]
            sample = {"min": min(values), "max": max(values), "mean": sum(values) / len(values)}
            stored = f"{_range(name, sample)} (of {len(values):,} sampled)"
        if original:
            rows.append(ComparedSizes(title, original, stored or "not measured"))
    total = as_mapping(data.sources.get("bytes")).get("sum")
    if rows and isinstance(total, int) and 0 <= total < _MAX_DRAWN:
        rows.append(ComparedSizes("all together", format_size(total), f"{format_size(data.bytes)} of shards"))
    return rows


def measured_originals(data: ReportData) -> int:
    """Returns the number of written images whose original size is known."""
    images = data.sources.get("images")
    return images if isinstance(images, int) else 0


def _range(name: str, spread: Document) -> str:
    """Returns minimum, maximum and mean as text; empty if they are not known."""
    values = _numbers([spread.get(key) for key in ("min", "max", "mean")])
    if not values:
        return ""
    low, high, mean = (_figure(name, value) for value in values)
    return low if low == high else f"{low} to {high}, mean {mean}"


def spread_rows(data: ReportData) -> list[tuple[str, ...]]:
    """Returns minimum, median, mean and maximum of the measurements of all images, as text."""
    measured = all_pictures(data.statistics)
    boxes = as_mapping(measured.get("boxes"))
    wanted = (
        ("width, pixels", measured.get("width")),
        ("height, pixels", measured.get("height")),
        ("width / height", measured.get("aspect_ratio")),
        ("bytes", measured.get("bytes")),
        ("objects in an image", boxes.get("per_image")),
    )
    rows = []
    for title, spread in wanted:
        values = [as_mapping(spread).get(name) for name in ("min", "median", "mean", "max", "std")]
        if all(isinstance(value, int | float) for value in values):
            rows.append((title, *(_figure(title, value) for value in values)))
    return rows


def _figure(title: str, value: Any) -> str:
    if title == "bytes":
        return format_size(value)
    if title in ("width", "height"):
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


class Channels(NamedTuple):
    """Means and standard deviations of the channels of a split, on a scale from 0 to 1."""

    split: str
    images: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def line(self) -> str:
        """Line of code that normalizes by them."""
        mean, std = (", ".join(f"{value:.4f}" for value in values) for values in (self.mean, self.std))
        return f"transforms.Normalize(mean=[{mean}], std=[{std}])"


def channel_rows(statistics: Document | None) -> list[Channels]:
    """Returns the channels of each split and of all splits, if they were measured."""
    rows = []
    document = as_mapping(statistics)
    found = [(str(split), as_mapping(value)) for split, value in as_mapping(document.get("splits")).items()]
    if len(found) > 1:
        found.append(("all", as_mapping(document.get("total"))))
    for split, value in found[:_MAX_SPLITS]:
        pixels = as_mapping(as_mapping(value.get("all")).get("pixels"))
        mean, std = (_numbers(pixels.get(name)) for name in ("mean", "std"))
        if mean and std:
            rows.append(Channels(split, int(pixels.get("images", 0)), tuple(mean), tuple(std)))
    return rows


class SampleRow(NamedTuple):
    """Measurements of one channel of the images with samples of one type, as text.

    Attributes:
      dtype: Type of the samples.
      channel: The channel, from 1, and the number of channels.
      images: Number of images.
      low: Least finite sample.
      high: Greatest finite sample.
      mean: Mean of the finite samples.
      std: Their standard deviation.
      odd: Number of samples that are NaN or infinite; empty for integers.
    """

    dtype: str
    channel: str
    images: int
    low: str
    high: str
    mean: str
    std: str
    odd: str


def sample_rows(statistics: Document | None) -> list[SampleRow]:
    """Returns the samples of all images in their own units, if records state the types of their samples."""
    rows = []
    for dtype, kinds in as_mapping(all_pictures(statistics).get("samples")).items():
        for number, sums in as_mapping(kinds).items():
            found = as_mapping(sums)
            images = found.get("images")
            columns = [found.get(name) for name in ("min", "max", "mean", "std")]
            if not isinstance(images, int) or not all(isinstance(column, list) for column in columns):
                continue
            for place, values in enumerate(zip(*columns)):
                low, high, mean, std = map(_sample, values)
                channel = f"{place + 1} of {number}"
                rows.append(SampleRow(str(dtype), channel, images, low, high, mean, std, _odd(found, place)))
    return rows[:_MAX_SAMPLE_ROWS]


def _sample(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) and abs(value) < _MAX_SAMPLE else "none"


def _odd(sums: Document, channel: int) -> str:
    """Returns how many samples of a channel are NaN or infinite, as text; empty for integers."""
    found = []
    for name, word in (("nan", "NaN"), ("infinite", "infinite")):
        counts = sums.get(name)
        if not isinstance(counts, list) or channel >= len(counts) or not isinstance(counts[channel], int):
            return ""
        if counts[channel]:
            found.append(f"{counts[channel]:,} {word}")
    return ", ".join(found) or "0"


def best_channels(rows: Sequence[Channels]) -> Channels | None:
    """Returns the channels to normalize by: those of the training images only."""
    named = {row.split.lower(): row for row in rows}
    return named.get("train") or named.get("training") or (rows[0] if len(rows) == 1 else named.get("all"))


def all_pictures(statistics: Document | None) -> Document:
    """Returns the measurements of all images in all splits; empty if there are none."""
    document = as_mapping(statistics)
    total = as_mapping(as_mapping(document.get("total")).get("all"))
    splits = [
        as_mapping(as_mapping(value).get("all")) for value in as_mapping(document.get("splits")).values()
    ]
    return total or (splits[0] if len(splits) == 1 else {})


def histogram_of(spread: Document) -> tuple[list[float], list[int]] | None:
    """Returns edges and counts of a measurement; None if it has none, or all values are in one bin."""
    found = as_mapping(spread.get("histogram"))
    edges, counts = (_numbers(found.get(name)) for name in ("edges", "counts"))
    if len(edges) != len(counts) + 1 or sum(map(bool, counts)) < 2:
        return None
    return edges, [int(count) for count in counts]


def _numbers(values: Any) -> list[float]:
    """Returns a list of numbers from a JSON document; any other value gives an empty list."""
    right = isinstance(values, list) and all(
        isinstance(value, int | float) and abs(value) < _MAX_DRAWN for value in values
    )
    return list(values) if right else []


@dataclass(frozen=True)
class ObjectsView:
    """The objects of a dataset as the page shows them.

    Attributes:
      counts: Objects in each image, from the ledgers. None if they are not known.
      classes: Rows with the number of objects of each class. Empty if they were not measured.
      charts: Charts of the objects in an image and of the sizes of boxes.
    """

    counts: ObjectCounts | None
    classes: tuple[ClassRow, ...]
    charts: tuple[Chart, ...]


def objects_view(data: ReportData) -> ObjectsView | None:
    """Returns what the page says about objects; None if nothing is known about them."""
    measured = as_mapping(all_pictures(data.statistics).get("boxes"))
    if not measured and (data.objects is None or not data.objects.objects):
        return None
    charts = []
    if data.objects is not None:
        charts.append(_per_image(data.objects))
    elif found := histogram_of(as_mapping(measured.get("per_image"))):
        charts.append(histogram("Objects in an image", "objects", *found))
    for name, title, label in (
        ("width", "Width of a box", "share of the image's width"),
        ("height", "Height of a box", "share of the image's height"),
        ("area", "Area of a box", "share of the image"),
    ):
        if found := histogram_of(as_mapping(measured.get(name))):
            charts.append(histogram(title, label, *found, what="boxes"))
    return ObjectsView(data.objects, _classes(data), tuple(charts))


def _per_image(counts: ObjectCounts) -> Chart:
    """Returns a chart of how many images have how many objects."""
    step = -(-(max(counts.images) + 1) // _MOST_BINS)
    bins = [0] * (max(counts.images) // step + 1)
    for number, images in counts.images.items():
        bins[number // step] += images
    edges = [place * step for place in range(len(bins) + 1)]
    return histogram("Objects in an image", "objects", edges, bins, whole=True)


def _classes(data: ReportData) -> tuple[ClassRow, ...]:
    """Returns the number of objects of each class in all splits, the largest first."""
    document = as_mapping(data.statistics)
    parts = [as_mapping(document.get("total"))]
    if not parts[0]:
        parts = [as_mapping(part) for part in as_mapping(document.get("splits")).values()]
    totals: Counter[str] = Counter()
    for part in parts:
        found: Mapping[str, object] = as_mapping(as_mapping(part.get("objects")).get("classes"))
        totals.update({str(name): count for name, count in found.items() if isinstance(count, int)})
    return class_rows(ranked(totals), {"objects": totals}) if totals else ()
