"""Measurements of images and objects for the page: from `statistics.json`, or else from sampled images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from shardwright.schemas.units import format_size

Document = Mapping[str, Any]

#: Columns of the spreads after the first.
SPREAD_HEADS = ("least", "median", "mean", "greatest", "deviation")
#: Columns of the stored samples after the first.
SAMPLE_HEADS = ("channel", "images", "least", "greatest", "mean", "deviation", "not finite")
#: Largest number of splits whose channels are listed.
_MAX_SPLITS = 12
#: Number of bins of the charts of sampled images.
_SAMPLED_BINS = 16
#: Up to this many bins each have one number of objects; above, a bin has several.
_MOST_BINS = 24
#: Largest number of rows about stored samples.
_MAX_SAMPLE_ROWS = 64
#: This many classes with equally many records share a row.
_FOLD_FROM = 5


class PictureSize(NamedTuple):
    """Width, height and number of bytes of one image."""

    width: int
    height: int
    bytes: int


class SourceSums(NamedTuple):
    """Minimum, maximum, mean and sum of a measure of the originals (`ShardTotals.sizes_of_sources`)."""

    min: int
    max: int
    mean: float
    sum: int


class SourceSummary(NamedTuple):
    """Sizes of the originals of written images; None if they are not known."""

    images: int = 0
    width: SourceSums | None = None
    height: SourceSums | None = None
    bytes: SourceSums | None = None


class ObjectCounts(NamedTuple):
    """The objects in the images whose lines in the ledgers were read.

    Attributes:
      images: Number of objects -> number of images.
      lost: Number of objects of their sources that the records do not have.
    """

    images: Mapping[int, int]
    lost: int = 0

    @property
    def read(self) -> int:
        """Number of images."""
        return sum(self.images.values())

    @property
    def objects(self) -> int:
        """Number of objects in them."""
        return sum(object_count * images for object_count, images in self.images.items())

    @property
    def without(self) -> int:
        """Number of images without objects."""
        return self.images.get(0, 0)


def ranked(totals: Mapping[str, int]) -> list[str]:
    """Returns the names by number of records, the most frequent first, equal ones by name."""
    return sorted(totals, key=lambda name: (-totals[name], name))


class ClassRow(NamedTuple):
    """A class with its records, or several classes with equally many.

    Attributes:
      names: Names of the classes.
      counts: Records in each split column; of several classes, the smallest number.
      most: Records in each split column; of several classes, the largest number.
      total: Records of each class.
      shares: Percentages of the largest class, for each split column; of several classes, their mean.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]
    most: tuple[int, ...]
    total: int
    shares: tuple[float, ...]


def class_rows(
    names: Sequence[str], columns: Mapping[str, Mapping[str, int]], fold: bool = True
) -> tuple[ClassRow, ...]:
    """Returns the rows of a table of classes.

    Args:
      names: Names of the classes, the largest class first.
      columns: Name of a column -> class -> records.
      fold: Whether many classes that have equally many records share a row.
    """
    totals = {name: sum(of_column.get(name, 0) for of_column in columns.values()) for name in names}
    largest = max([1, *totals.values()])
    rows = []
    for records, equal in groupby(names, key=totals.__getitem__):
        alike = tuple(equal)
        together = [alike] if fold and len(alike) >= _FOLD_FROM else [(name,) for name in alike]
        for some in together:
            counts = [[of_column.get(name, 0) for name in some] for of_column in columns.values()]
            shares = tuple(round(100 * sum(column) / len(some) / largest, 2) for column in counts)
            rows.append(ClassRow(some, tuple(map(min, counts)), tuple(map(max, counts)), records, shares))
    return tuple(rows)


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
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * limit:  # three digits would round it to this limit
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def histogram(
    title: str, label: str, edges: Sequence[float], counts: Sequence[int], *,
    whole: bool = False, what: str = "images",
) -> Chart:  # fmt: skip
    """Returns the distribution of a number as a chart.

    Args:
      title: Title of the chart.
      label: Name of the number. `bytes` are shown as sizes.
      edges: Edges of the bins, one more than there are bins.
      counts: Number of images in each bin.
      whole: Whether the numbers are whole, and each bin ends before its second edge.
      what: What is counted, in the plural.
    """

    text = format_size if label == "bytes" else short
    most = max(counts)
    bars = []
    for low, high, count in zip(edges, edges[1:], counts):
        ends = (low,) if whole and high - low <= 1 else (low, high - 1 if whole else high)
        bars.append(Bar(" to ".join(map(text, ends)), count, round(100 * count / most, 2)))
    return Chart(title, label, what, tuple(bars))


class ComparedSizes(NamedTuple):
    """A measurement of the originals and of the stored images, as text."""

    what: str
    original: str
    stored: str


class Channels(NamedTuple):
    """Means and standard deviations of the channels of a split, on a scale from 0 to 1."""

    split: str
    images: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class Measures:
    """Measurements as the page shows them; empty if nothing was measured.

    Attributes:
      all_images: Whether all images were measured. Otherwise some were sampled.
      sampled: Number of sampled images.
      originals: Number of written images whose original size is known.
      compared: Sizes of the originals beside those of the stored images.
      spreads: Name, then minimum, median, mean, maximum and deviation of measurements of all images, as text.
      size_charts: Charts of the sizes of the images.
      channels: Channels of each split and of all splits.
      samples: Type, channel, number of images and measurements of the samples of all images in their own
        units, as text, if records state the types of their samples.
      quality_charts: Charts of the quality metrics.
      counts: Objects in each image, from the ledgers. None if they are not known, or there are none.
      object_classes: Rows with the number of objects of each class. Empty if they were not measured.
      object_charts: Charts of the objects in an image and of the sizes of boxes.
    """

    all_images: bool = False
    sampled: int = 0
    originals: int = 0
    compared: tuple[ComparedSizes, ...] = ()
    spreads: tuple[tuple[str, ...], ...] = ()
    size_charts: tuple[Chart, ...] = ()
    channels: tuple[Channels, ...] = ()
    samples: tuple[tuple[str, ...], ...] = ()
    quality_charts: tuple[Chart, ...] = ()
    counts: ObjectCounts | None = None
    object_classes: tuple[ClassRow, ...] = ()
    object_charts: tuple[Chart, ...] = ()

    @property
    def best_channels(self) -> Channels | None:
        """The channels of the training images, by which to normalize."""
        by_split = {row.split.lower(): row for row in self.channels}
        only = self.channels[0] if len(self.channels) == 1 else by_split.get("all")
        return by_split.get("train") or by_split.get("training") or only


#: Sizes of originals that are not known.
_UNKNOWN = SourceSummary()


def measure(
    statistics: Document | None,
    sampled: Sequence[PictureSize],
    sources: SourceSummary = _UNKNOWN,
    objects: ObjectCounts | None = None,
    shard_bytes: int = 0,
) -> Measures:
    """Returns the measurements of a dataset as the page shows them.

    Args:
      statistics: Contents of `statistics.json`. None if there is none.
      sampled: Sizes of the images that were read for the page.
      sources: Sizes of the originals.
      objects: Objects in the images. None if they are not known.
      shard_bytes: Number of bytes of all shards.

    Raises:
      LookupError, TypeError, ValueError, AttributeError or OverflowError: if the statistics are damaged.
    """
    document = statistics or {}
    total: Document = document["total"] if document else {}
    measured: Document = total["all"] if total else {}
    counts: Mapping[str, int] = total.get("objects", {}).get("classes", {})
    boxes: Document = measured.get("boxes", {})
    if objects is not None and not objects.objects and not boxes:
        objects = None
    return Measures(
        all_images=bool(document),
        sampled=len(sampled),
        originals=sources.images,
        compared=tuple(_compare_sizes(measured, sampled, sources, shard_bytes)),
        spreads=tuple(_spreads(measured, boxes)),
        size_charts=tuple(_size_charts(measured, sampled)),
        channels=tuple(_channels(document)),
        samples=tuple(_sample_rows(measured.get("samples", {})))[:_MAX_SAMPLE_ROWS],
        quality_charts=tuple(_charts(measured.get("scores", {}), *_QUALITY)),
        counts=objects,
        object_classes=class_rows(ranked(counts), {"objects": counts}),
        object_charts=(
            *(_charts(boxes, _PER_IMAGE) if objects is None else [_per_image(objects)]),
            *_charts(boxes, *_BOXES, what="boxes"),
        ),
    )


#: Name of a measurement, title of its chart, and label of the numbers.
_SIZES = (
    ("bytes", "Bytes of an image", "bytes"),
    ("width", "Width", "pixels"),
    ("height", "Height", "pixels"),
    ("aspect_ratio", "Width by height", "width / height"),
)
_QUALITY = (
    ("brightness", "Brightness", "brightness, 0 to 1"),
    ("sharpness", "Sharpness", "sharpness, 0 to 1"),
    ("information", "Information", "information, 0 to 1"),
)
_PER_IMAGE = ("per_image", "Objects in an image", "objects")
_BOXES = (
    ("width", "Width of a box", "share of the image's width"),
    ("height", "Height of a box", "share of the image's height"),
    ("area", "Area of a box", "share of the image"),
)


def _charts(measured: Document, *specs: tuple[str, str, str], what: str = "images") -> Iterator[Chart]:
    """Yields the charts of measurements, except of those whose values are all in one bin.

    Args:
      measured: Name of a measurement -> its spread.
      *specs: Name of a measurement, title of its chart and label of the numbers.
      what: What is counted, in the plural.
    """
    for name, title, label in specs:
        bins = measured.get(name, {}).get("histogram")
        if bins and sum(map(bool, bins["counts"])) > 1:
            yield histogram(title, label, bins["edges"], bins["counts"], what=what)


def _size_charts(measured: Document, sampled: Sequence[PictureSize]) -> Iterator[Chart]:
    """Yields charts of the sizes and bytes of the images: of all if they were measured, else of samples."""
    if measured:
        yield from _charts(measured, *_SIZES)
        return
    for name, title, label in _SIZES[:3]:
        values = [getattr(size, name) for size in sampled]
        if len(set(values)) > 1:
            counts, edges = np.histogram(values, _SAMPLED_BINS)
            yield histogram(title, label, edges.tolist(), counts.tolist(), what="sampled images")


def _compare_sizes(
    measured: Document, sampled: Sequence[PictureSize], sources: SourceSummary, shard_bytes: int
) -> Iterator[ComparedSizes]:
    """Yields the sizes of the originals and of the stored images, if they are known."""
    for name, title in (("width", "width, pixels"), ("height", "height, pixels"), ("bytes", "bytes")):
        original: SourceSums | None = getattr(sources, name)
        if original is None:
            continue
        stored = "not measured"
        if measured.get(name, {}).get("count"):
            stored = _range(name, *(measured[name][key] for key in ("min", "max", "mean")))
        elif sampled:
            values = [getattr(size, name) for size in sampled]
            low, high, mean = min(values), max(values), sum(values) / len(values)
            stored = f"{_range(name, low, high, mean)} (of {len(values):,} sampled)"
        yield ComparedSizes(title, _range(name, original.min, original.max, original.mean), stored)
    if sources.bytes is not None:
        size = format_size(sources.bytes.sum)
        yield ComparedSizes("all together", size, f"{format_size(shard_bytes)} of shards")


def _range(name: str, low: float, high: float, mean: float) -> str:
    """Returns minimum, maximum and mean as text."""
    low_text, high_text, mean_text = (_figure(name, value) for value in (low, high, mean))
    return low_text if low_text == high_text else f"{low_text} to {high_text}, mean {mean_text}"


def _spreads(measured: Document, boxes: Document) -> Iterator[tuple[str, ...]]:
    for title, spread in (
        ("width, pixels", measured.get("width", {})),
        ("height, pixels", measured.get("height", {})),
        ("width / height", measured.get("aspect_ratio", {})),
        ("bytes", measured.get("bytes", {})),
        ("objects in an image", boxes.get("per_image", {})),
    ):
        if spread.get("count"):
            names = ("min", "median", "mean", "max", "std")
            yield title, *(_figure(title, spread[name]) for name in names)


def _figure(title: str, value: float) -> str:
    if title == "bytes":
        return format_size(value)
    is_whole = title in ("width", "height") or abs(value) >= 1000
    return f"{value:,.0f}" if is_whole else f"{value:.4g}"


def _channels(document: Document) -> Iterator[Channels]:
    """Yields the channels of each split and of all splits, if they were measured."""
    parts = dict(document.get("splits", {}))
    if len(parts) > 1:
        parts["all"] = document["total"]
    for split, part in list(parts.items())[:_MAX_SPLITS]:
        pixels = part["all"].get("pixels")
        if pixels and None not in (*pixels["mean"], *pixels["std"]):
            yield Channels(split, pixels["images"], tuple(pixels["mean"]), tuple(pixels["std"]))


def _sample_rows(samples: Document) -> Iterator[tuple[str, ...]]:
    for dtype, kinds in samples.items():
        for channel_count, sums in kinds.items():
            for place, values in enumerate(zip(*(sums[name] for name in ("min", "max", "mean", "std")))):
                low, high, mean, std = ("none" if value is None else f"{value:.6g}" for value in values)
                odd = [
                    f"{sums[name][place]:,} {word}"
                    for name, word in (("nan", "NaN"), ("infinite", "infinite"))
                    if name in sums and sums[name][place]
                ]
                odd_text = ", ".join(odd) or ("0" if "nan" in sums else "")
                of = f"{place + 1} of {channel_count}"
                yield dtype, of, f"{sums['images']:,}", low, high, mean, std, odd_text


def _per_image(counts: ObjectCounts) -> Chart:
    """Returns a chart of how many images have how many objects."""
    most = max(counts.images)
    step = -(-(most + 1) // _MOST_BINS)
    bins = [0] * (most // step + 1)
    for object_count, images in counts.images.items():
        bins[object_count // step] += images
    edges = [place * step for place in range(len(bins) + 1)]
    return histogram(_PER_IMAGE[1], _PER_IMAGE[2], edges, bins, whole=True)
