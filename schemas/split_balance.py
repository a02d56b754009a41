"""Compares the classes of the splits: which ones are spread unevenly, and which ones a split lacks.

Only the counts of `dataset.json` are needed. The largest split, usually the training split, is the yardstick:
every other split is compared with it. A class is uneven in a split if

- its share there is at least twice or at most half of its share in the largest split, and
- chance alone would hardly do that: over all comparisons of a dataset together, the probability that a
  split drawn at random gives even one such warning is below 1 %.

A class is missing from a split if the split has records with classes, but none of this class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from shardwright.schemas.image_ref import printable
from shardwright.schemas.units import counted

#: How many times as large one share must be as the other.
MIN_RATIO = 2.0
#: Probability of a warning by chance, over all comparisons of a dataset.
MAX_CHANCE = 0.01
#: Classes that a sentence names, and splits that have a sentence of their own.
_NAMED, _SENTENCES = 3, 6
#: Letters of a class name in a sentence.
_LETTERS = 60


class ClassShare(NamedTuple):
    """How many records of a split have a class.

    Attributes:
      split: the split.
      number: its records of the class.
      records: its records.
    """

    split: str
    number: int
    records: int

    @property
    def share(self) -> float:
        """Records of the class as a share of all records."""
        return self.number / self.records

    def __str__(self) -> str:
        return f"{_percent(self.share)} of {self.split} ({self.number:,} of {self.records:,})"


class UnevenClass(NamedTuple):
    """A class whose share differs between two splits.

    Attributes:
      name: the class.
      more: its share in the split that has more of it.
      less: its share in the split that has less of it.
    """

    name: str
    more: ClassShare
    less: ClassShare

    def __str__(self) -> str:
        return f"{_shown(self.name)} is {self.more} but {self.less}"


class MissingClasses(NamedTuple):
    """The classes that a split lacks.

    Attributes:
      split: the split.
      names: the classes, those with the most records in other splits first.
      classes: number of classes of the dataset that have records.
    """

    split: str
    names: tuple[str, ...]
    classes: int

    def __str__(self) -> str:
        named = ", ".join(map(_shown, self.names[:_NAMED]))
        if len(self.names) > _NAMED:
            named = f"such as {named}"
        return (
            f"Split {self.split} has no image of {len(self.names):,} of "
            f"{counted(self.classes, 'class')}: {named}."
        )


class SplitBalance(NamedTuple):
    """What is different between the classes of the splits.

    Attributes:
      uneven: the uneven classes, the largest difference of shares first.
      missing: the splits that lack classes, in the order of the dataset.
      classes: number of classes that have records.
    """

    uneven: tuple[UnevenClass, ...] = ()
    missing: tuple[MissingClasses, ...] = ()
    classes: int = 0

    @property
    def sentences(self) -> list[str]:
        """What a command prints: few lines, however many classes there are."""
        lines = []
        if self.uneven:
            named = "; ".join(map(str, self.uneven[:_NAMED]))
            others = f", the worst first: {named}" if len(self.uneven) > _NAMED else f": {named}"
            lines.append(
                f"{len(self.uneven):,} of {counted(self.classes, 'class')} "
                f"{'differs' if len(self.uneven) == 1 else 'differ'} between splits{others}."
            )
        lines += map(str, self.missing[:_SENTENCES])
        if len(self.missing) > _SENTENCES:
            more = len(self.missing) - _SENTENCES
            verb = "lacks" if more == 1 else "lack"
            lines.append(" ".join((counted(more, "more split"), verb, "classes.")))
        return lines


def compare_splits(class_counts: Mapping[str, Mapping[str, int]], records: Mapping[str, int]) -> SplitBalance:
    """Finds the classes that are spread unevenly over the splits, and those that a split lacks.

    Splits without records, and splits whose records have no classes, are left alone.

    Args:
      class_counts: split -> class -> records of the class.
      records: split -> records.
    """
    counts = {
        split: {name: count for name, count in of_split.items() if count}
        for split, of_split in class_counts.items()
        if records.get(split) and any(of_split.values())
    }
    totals: dict[str, int] = {}
    for of_split in counts.values():
        for name, count in of_split.items():
            totals[name] = totals.get(name, 0) + count
    if len(counts) < 2:
        return SplitBalance(classes=len(totals))
    largest = max(counts, key=lambda split: records[split])
    tests = len(totals) * (len(counts) - 1)
    uneven: dict[str, UnevenClass] = {}
    missing = []
    for split, of_split in counts.items():
        lacking = totals.keys() - of_split.keys()
        if lacking:
            names = sorted(lacking, key=lambda name: (-totals[name], name))
            missing.append(MissingClasses(split, tuple(names), len(totals)))
        if split == largest:
            continue
        for name, count in of_split.items():
            if name in counts[largest]:
                pair = (
                    ClassShare(split, count, records[split]),
                    ClassShare(largest, counts[largest][name], records[largest]),
                )
                less, more = sorted(pair, key=lambda share: share.share)
                found = UnevenClass(name, more, less)
                worst = uneven.get(name)
                if _is_uneven(more, less, tests) and (worst is None or _gap(found) > _gap(worst)):
                    uneven[name] = found
    ordered = sorted(uneven.values(), key=lambda found: (-_gap(found), found.name))
    return SplitBalance(tuple(ordered), tuple(missing), len(totals))


def _gap(found: UnevenClass) -> float:
    return found.more.share - found.less.share


def _is_uneven(more: ClassShare, less: ClassShare, tests: int) -> bool:
    """Whether two shares differ by `MIN_RATIO`, and by more than chance explains.

    If the records of both splits were dealt at random, the records of a class would fall into the one
    split with the probability `expected`. Chernoff's and Hoeffding's bound on the probability that so many
    of them do is exp(-count * KL), with the relative entropy KL of what was found and what was expected. It
    is an upper bound for any counts, so small ones do not warn by chance.
    """
    if more.share < MIN_RATIO * less.share:
        return False
    count = more.number + less.number
    found, expected = more.number / count, more.records / (more.records + less.records)
    entropy = found * math.log(found / expected)
    if found < 1:
        entropy += (1 - found) * math.log((1 - found) / (1 - expected))
    return math.log(2 * tests) - count * entropy < math.log(MAX_CHANCE)


def _percent(share: float) -> str:
    """Returns a share with two digits: `20%`, `6.1%`, `0.012%`; never rounded to all."""
    value = 100 * share
    if 99.5 <= value < 100:
        return "over 99%"
    return f"{value:.0f}%" if value >= 9.95 else f"{value:.2g}%" if value >= 0.001 else "under 0.001%"


def _shown(name: str) -> str:
    text = repr(printable(name))
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS]}...'"
