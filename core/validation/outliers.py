"""Finds images that differ from most others, by size or as gray ones among colored ones; and odd classes.

The sizes of all images are counted first; then each image is compared with the counts. Sizes are judged as
by cleanvision 0.3.7 (`SizeProperty`): a size is odd if the square root of its area lies more than three
interquartile ranges outside the quartiles. Gray images are odd unless they are more than half of all images,
because cleanvision does not report an issue that more than half of the images have.

A class is tiny if it has fewer than 10 images in the training split, or none in a split where other
classes have some. A class is out of balance if it has less than a tenth of the images of the median class in
the training split, or more than ten times as many. That is the split `train`, or else the largest split.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from shardwright.core.images.quality_metrics import describe_issue, score_of_issue
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.findings import Finding
from shardwright.schemas.pictures import Picture
from shardwright.schemas.units import counted, decimals_apart

_IQR_FACTOR = 3.0
#: Areas are counted with this many significant bits, within 1/8,192, which keeps the number of counts small.
_SIGNIFICANT_BITS = 14
_SCORE_DIGITS = 4
_FEW = 10
_OUT_OF_BALANCE = 10
_TRAIN = "train"


def odd_pictures(pictures: Iterable[Picture]) -> Iterator[Finding]:
    """Yields findings about single images."""
    for picture in pictures:
        quality = picture.quality
        for issue in quality.issues if quality else ():
            if quality and issue != FindingCode.GRAYSCALE:  # only a finding among colored images
                message, score = describe_issue(issue, quality.scores), score_of_issue(issue, quality.scores)
                yield Finding(FindingCode(issue), message, *picture[:4], score=score)


class SizeRow(NamedTuple):
    """Values of an image that are compared with all others."""

    number: int
    offset: int
    key: str | None
    width: int
    height: int
    gray: bool


#: A shard's name and its pictures.
ShardSizes = tuple[str, list[SizeRow]]


#: (rounded area, whether it has no colors) -> number of images.
SizeCounts = Counter[tuple[int, bool]]


def count_sizes(shard: ShardSizes) -> SizeCounts:
    """Returns the number of images of a shard by area."""
    return Counter((_rounded_area(row), row.gray) for row in map(SizeRow._make, shard[1]))


def added_counts(parts: Iterable[Counter[Any]]) -> Counter[Any]:
    """Returns the sum of counts, which stay as they are."""
    total: Counter[Any] = Counter()
    for part in parts:
        total.update(part)
    return total


def sizes_of(file: str, pictures: Iterable[Picture]) -> ShardSizes:
    """Returns the values of a shard's images that are compared."""
    rows = []
    for picture in pictures:
        is_gray = picture.quality is not None and FindingCode.GRAYSCALE in picture.quality.issues
        rows.append(SizeRow(*picture[1:4], picture.width, picture.height, is_gray))
    return file, rows


def find_outliers(shard: ShardSizes, sizes: SizeCounts) -> Iterator[Finding]:
    """Yields findings for a shard's images that differ from most others.

    Args:
      shard: Name of the shard, and its images.
      sizes: Counts of all images.
    """
    file, rows = shard
    areas = Counter[int]()
    for (area, _), count in sizes.items():
        areas[area] += count
    if not areas:
        return
    first, third = _quartiles(areas)
    margin = _IQR_FACTOR * (third - first)
    least, most = first - margin, third + margin
    gray_is_odd = 2 * sum(count for (_, gray), count in sizes.items() if gray) <= sizes.total()
    for item in rows:
        row = SizeRow(*item)
        side = math.sqrt(_rounded_area(row))
        if not least <= side <= most:
            low, high = max(0.0, least), most
            score = side / low if side < low else high / side  # from 0 for the worst to 1 at a limit
            decimals = decimals_apart(side, low if side < least else high)
            text, *limits = (f"{value:.{decimals}f}" for value in (side, low, high))
            message = (
                f"it is {row.width} x {row.height}, as many pixels as {text} x {text}; as squares, half of "
                f"all images have sides of {first:.0f} to {third:.0f} (limits {limits[0]} to {limits[1]})"
            )
            yield Finding(FindingCode.ODD_SIZE, message, file, *row[:3], score=round(score, _SCORE_DIGITS))
        if row.gray and gray_is_odd:
            message = describe_issue(FindingCode.GRAYSCALE, ())
            yield Finding(FindingCode.GRAYSCALE, message, file, *row[:3])


def _rounded_area(row: SizeRow) -> int:
    area = row.width * row.height
    shift = max(0, area.bit_length() - _SIGNIFICANT_BITS)
    return area >> shift << shift


def _quartiles(areas: Counter[int]) -> Sequence[float]:
    """Returns the quartiles of the areas' square roots, interpolated between values."""
    ordered = sorted(areas)
    ends = list(accumulate(areas[area] for area in ordered))
    last = ends[-1] - 1
    quartiles = []
    for rank, rest in (divmod(quarter * last, 4) for quarter in (1, 3)):
        low, high = (math.sqrt(ordered[bisect_right(ends, place)]) for place in (rank, min(rank + 1, last)))
        quartiles.append(low + (high - low) * (rest / 4))
    return quartiles


#: (split, class) -> number of images.
ClassCounts = Counter[tuple[str, str]]


def count_classes(pictures: Iterable[Picture]) -> ClassCounts:
    """Returns the number of images by split and class."""
    return Counter((picture.split, name) for picture in pictures for name in set(picture.labels))


def check_balance(counts: ClassCounts, labels: Sequence[str] = ()) -> Iterator[Finding]:
    """Yields findings about the classes; nothing if no image has a class.

    Args:
      counts: Counts of all images with classes.
      labels: Names of all classes, to find classes without images.
    """
    splits: dict[str, Counter[str]] = {}
    for (split, name), count in counts.items():
        splits.setdefault(split, Counter())[name] = count
    if not splits:
        return
    train = _TRAIN if _TRAIN in splits else max(sorted(splits), key=lambda split: splits[split].total())
    where = f"split {train!r}" if train else "the dataset"
    counts_of_train = splits[train]
    others = [split for split in sorted(splits) if split != train]
    names = sorted({*labels, *(name for split in splits.values() for name in split)})
    typical = statistics.median(counts_of_train.values())
    for name in names:
        count = counts_of_train[name]
        has = f"class {name!r} has {counted(count, 'image') if count else 'no images'} in {where}"
        missing = [repr(split) for split in others if not splits[split][name]]
        if count < _FEW or missing:
            few = f" (fewer than {_FEW})" if count < _FEW else ""
            lack = f", and none in {' and '.join(missing)}, where others have some" if missing else ""
            yield Finding(FindingCode.TINY_CLASS, f"{has}{few}{lack}")
        share = ""
        if count > typical * _OUT_OF_BALANCE:
            share = f"more than {_OUT_OF_BALANCE} times"
        elif 0 < count * _OUT_OF_BALANCE < typical:
            share = f"less than a {_OUT_OF_BALANCE}th of"
        if share:
            message = f"{has}: {share} the {typical:,g} of the median class"
            yield Finding(FindingCode.CLASS_IMBALANCE, message)
