"""Measurements of images and objects for the page: from `statistics.json`, or else from what was sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from shardwright.core.report.charts import Chart, bins_of, histogram, size_scatter
from shardwright.core.report.data import ObjectCounts, ReportData, part_of
from shardwright.core.report.samples import ranked
from shardwright.core.report.view import ClassRow, class_rows
from shardwright.schemas.drift_tables import Document, as_mapping
from shardwright.schemas.units import format_size

#: Larger numbers, and values that are not numbers, are not drawn.
_MAX_DRAWN = 1e18
#: Largest number of splits whose channels are listed.
_MAX_SPLITS = 12
#: Samples from here on are not shown; float32 ends before.
_MAX_SAMPLE = 1e39
#: Largest number of rows of the table of samples.
_MAX_SAMPLE_ROWS = 64
#: Up to this many bins each have one number of objects; above, a bin has several.
_MOST_BINS = 24


class Table(NamedTuple):
    """A table of text, whose first column names the rows.

    Attributes:
      title: What the table shows.
      heads: Heads of the columns.
      rows: The rows.
    """

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def size_charts(data: ReportData) -> list[Chart]:
    """Draws the sizes and bytes of the images: of all if they were measured, else of the sampled ones."""
    charts = []
    originals, stored = (
        [(size.width, size.height) for size in sizes] for sizes in (data.originals, data.sampled)
    )
    if len(set(originals)) > 1:
        charts.append(size_scatter(originals, "Width and height of the originals", "originals"))
    if len(set(stored)) > 1:
        charts.append(size_scatter(stored, "Width and height as stored" if originals else "Width and height"))
    charts += _histograms(
        data.measured,
        (
            ("bytes", "Bytes of an image", "bytes"),
            ("width", "Width", "pixels"),
            ("height", "Height", "pixels"),
            ("aspect_ratio", "Width by height", "width / height"),
        ),
    )
    if not data.measured and data.sampled:
        bins = bins_of([float(size.bytes) for size in data.sampled])
        charts.append(histogram("bytes", "Bytes of an image", "bytes", *bins, is_bytes=True, sampled=True))
    return charts


def quality_charts(data: ReportData) -> list[Chart]:
    """Draws the quality metrics of the images, if they were measured."""
    scores = ("brightness", "sharpness", "information")
    asked = ((name, name.capitalize(), f"{name}, 0 to 1") for name in scores)
    return _histograms(part_of(data.measured, "scores"), asked, "score-")


def _histograms(
    spreads: Document, asked: Iterable[tuple[str, str, str]], prefix: str = "", what: str = "images"
) -> list[Chart]:
    """Draws those of some measurements that have more than one value.

    Args:
      spreads: Mapping of name to measurement.
      asked: Name, title and label of each measurement.
      prefix: Prefix of the charts' names.
      what: What was measured, in the plural.
    """
    charts = []
    for name, title, label in asked:
        edges, counts = (
            _numbers(part_of(spreads, name, "histogram").get(key)) for key in ("edges", "counts")
        )
        if len(edges) == len(counts) + 1 and sum(map(bool, counts)) > 1:
            is_bytes, whole_counts = label == "bytes", [int(count) for count in counts]
            charts.append(
                histogram(prefix + name, title, label, edges, whole_counts, is_bytes=is_bytes, what=what)
            )
    return charts


def compared_sizes(data: ReportData) -> Table | None:
    """Returns the sizes of the originals beside those of the stored images; None if they are not known."""
    rows = []
    for name, title in (("width", "width, pixels"), ("height", "height, pixels"), ("bytes", "bytes")):
        original, stored = (_range(name, part_of(sizes, name)) for sizes in (data.sources, data.measured))
        if not stored and data.sampled:
            values = [getattr(size, name) for size in data.sampled]
            sample = {"min": min(values), "max": max(values), "mean": sum(values) / len(values)}
            stored = f"{_range(name, sample)} (of {len(values):,} sampled)"
        if original:
            rows.append((title, original, stored or "not measured"))
    if not rows:
        return None
    total = part_of(data.sources, "bytes").get("sum")
    if isinstance(total, int) and 0 <= total < _MAX_DRAWN:
        rows.append(("all together", format_size(total), f"{format_size(data.bytes)} of shards"))
    title, images, written = "Originals and stored images", data.sources.get("images"), data.ledger["written"]
    if not isinstance(images, int) or images < written:
        count = images if isinstance(images, int) else 0
        title += f"; the original size is known for {count:,} of {written:,} images"
    return Table(title, ("", "original", "stored"), rows)


def _range(name: str, spread: Document) -> str:
    """Returns minimum, maximum and mean as text; empty if they are not known."""
    values = _numbers([spread.get(key) for key in ("min", "max", "mean")])
    if not values:
        return ""
    low, high, mean = (_figure(name, value) for value in values)
    return low if low == high else f"{low} to {high}, mean {mean}"


def spreads(data: ReportData) -> Table | None:
    """Returns the measurements of all images; None if there are none."""
    asked = (
        ("width, pixels", part_of(data.measured, "width")),
        ("height, pixels", part_of(data.measured, "height")),
        ("width / height", part_of(data.measured, "aspect_ratio")),
        ("bytes", part_of(data.measured, "bytes")),
        ("objects in an image", part_of(data.measured, "boxes", "per_image")),
    )
    rows = [
        (title, *(_figure(title, value) for value in values))
        for title, spread in asked
        if (values := _numbers([spread.get(name) for name in ("min", "median", "mean", "max", "std")]))
    ]
    heads = ("of an image", "least", "median", "mean", "greatest", "deviation")
    return Table("Stored images", heads, rows) if rows else None


def _figure(title: str, value: Any) -> str:
    if title == "bytes":
        return format_size(value)
    return f"{value:,.0f}" if title in ("width", "height") or abs(value) >= 1000 else f"{value:.4g}"


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
    splits = part_of(statistics, "splits")
    parts = [(str(name), part_of(splits, name, "all", "pixels")) for name in splits]
    if len(parts) > 1:
        parts.append(("all", part_of(statistics, "total", "all", "pixels")))
    rows = []
    for split, pixels in parts[:_MAX_SPLITS]:
        mean, std = (_numbers(pixels.get(name)) for name in ("mean", "std"))
        if mean and std:
            rows.append(Channels(split, int(pixels.get("images", 0)), tuple(mean), tuple(std)))
    return rows


def best_channels(rows: Sequence[Channels]) -> Channels | None:
    """Returns the channels to normalize by: those of the training images only."""
    named = {row.split.lower(): row for row in rows}
    return named.get("train") or named.get("training") or (rows[0] if len(rows) == 1 else named.get("all"))


def stored_samples(data: ReportData) -> Table | None:
    """Returns the samples of all images in their own units, if records state the types of their samples."""
    rows: list[tuple[str, ...]] = []
    for dtype, kinds in part_of(data.measured, "samples").items():
        for number, value in as_mapping(kinds).items():
            sums = as_mapping(value)
            images = sums.get("images")
            columns = [sums.get(name) for name in ("min", "max", "mean", "std")]
            if not isinstance(images, int) or not all(isinstance(column, list) for column in columns):
                continue
            for place, values in enumerate(zip(*columns)):
                channel = f"{place + 1} of {number}"
                rows.append((dtype, channel, f"{images:,}", *map(_sample, values), _odd(sums, place)))
    heads = ("type", "channel", "images", "least", "greatest", "mean", "deviation", "not finite")
    return Table("Stored samples, in their own units", heads, rows[:_MAX_SAMPLE_ROWS]) if rows else None


def _sample(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) and abs(value) < _MAX_SAMPLE else "none"


def _odd(sums: Document, channel: int) -> str:
    """Returns how many samples of a channel are NaN or infinite, as text; empty for integers."""
    words = []
    for name, word in (("nan", "NaN"), ("infinite", "infinite")):
        counts = _numbers(sums.get(name))
        if channel >= len(counts):
            return ""
        if counts[channel]:
            words.append(f"{counts[channel]:,} {word}")
    return ", ".join(words) or "0"


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
    boxes = part_of(data.measured, "boxes")
    if not boxes and (data.objects is None or not data.objects.objects):
        return None
    if data.objects is not None:
        charts = [_per_image(data.objects)]
    else:
        charts = _histograms(boxes, [("per_image", "Objects in an image", "objects")], "box-")
    charts += _histograms(
        boxes,
        (
            ("width", "Width of a box", "share of the image's width"),
            ("height", "Height of a box", "share of the image's height"),
            ("area", "Area of a box", "share of the image"),
        ),
        "box-",
        "boxes",
    )
    classes = part_of(data.statistics, "total", "objects", "classes")
    counts = Counter({str(name): count for name, count in classes.items() if isinstance(count, int)})
    return ObjectsView(data.objects, class_rows(ranked(counts), {"objects": counts}), tuple(charts))


def _per_image(counts: ObjectCounts) -> Chart:
    """Draws how many images have how many objects."""
    step = -(-(max(counts.images) + 1) // _MOST_BINS)
    bins = [0] * (max(counts.images) // step + 1)
    for number, images in counts.images.items():
        bins[number // step] += images
    edges = [place * step for place in range(len(bins) + 1)]
    return histogram("box-per_image", "Objects in an image", "objects", edges, bins, whole=True)


def _numbers(values: Any) -> list[float]:
    """Returns a list of numbers from a JSON document; any other value gives an empty list."""
    right = isinstance(values, list) and all(
        isinstance(value, int | float) and abs(value) < _MAX_DRAWN for value in values
    )
    return list(values) if right else []
