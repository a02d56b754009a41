"""Finds classes with too few images, and classes that are far from the others in size.

A class is tiny if it has fewer than 10 images in the training split, or none in a split where other
classes have some. A class is out of balance if it has less than a tenth of the images of the median class in
the training split, or more than ten times as many. That is the split `train`, or else the largest split.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from shardwright.schemas.codes import FindingCode
from shardwright.schemas.findings import Finding
from shardwright.schemas.pictures import Picture
from shardwright.schemas.units import counted

_FEW = 10
_OUT_OF_BALANCE = 10
_TRAIN = "train"


@dataclass
class ClassCounts:
    """Counts of images by split and class; they can be merged.

    Attributes:
      splits: Mapping of split to class to number of images.
    """

    splits: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, pictures: Iterable[Picture]) -> ClassCounts:
        """Adds images; returns itself."""
        for picture in pictures:
            if picture.labels:
                self.splits.setdefault(picture.split, Counter()).update(set(picture.labels))
        return self

    def merge(self, other: ClassCounts) -> ClassCounts:
        """Adds other counts; returns itself."""
        for split, counts in other.splits.items():
            self.splits.setdefault(split, Counter()).update(counts)
        return self


def check_balance(counts: ClassCounts, labels: Sequence[str] = ()) -> Iterator[Finding]:
    """Yields findings about the classes; nothing if no image has a class.

    Args:
      counts: Counts of all images with classes.
      labels: Names of all classes, to find classes without images.
    """
    if not counts.splits:
        return
    train = _TRAIN
    if train not in counts.splits:
        train = max(sorted(counts.splits), key=lambda split: counts.splits[split].total())
    where = f"split {train!r}" if train else "the dataset"
    counts_of_train = counts.splits[train]
    others = [split for split in sorted(counts.splits) if split != train]
    names = sorted({*labels, *(name for split in counts.splits.values() for name in split)})
    typical = statistics.median(counts_of_train.values())
    for name in names:
        number = counts_of_train[name]
        missing = [repr(split) for split in others if not counts.splits[split][name]]
        if number < _FEW or missing:
            few = f"class {name!r} has {counted(number, 'image') if number else 'no images'} in {where}" + (
                f" (fewer than {_FEW})" if number < _FEW else ""
            )
            yield Finding(
                FindingCode.TINY_CLASS,
                few + (f", and none in {' and '.join(missing)}, where others have some" if missing else ""),
            )
        if not number:
            continue
        side = (
            f"less than a {_OUT_OF_BALANCE}th of"
            if number * _OUT_OF_BALANCE < typical
            else f"more than {_OUT_OF_BALANCE} times"
            if number > typical * _OUT_OF_BALANCE
            else ""
        )
        if side:
            yield Finding(
                FindingCode.CLASS_IMBALANCE,
                f"class {name!r} has {counted(number, 'image') if number else 'no images'} in {where}: "
                f"{side} the {typical:,g} of the median class",
            )
