"""The order of splits; classes that are spread unevenly over them; and how far they meet their shares.

A comparison needs only the counts of `dataset.json`. Every split is compared with the largest one, which is
usually the training split. A class is uneven in a split if

- its share there is at least twice or at most half of its share in the largest split, and
- chance does not explain it: over all comparisons of a dataset together, the probability that a split drawn
  at random gives even one such warning is below 1 %.

A class is missing from a split if the split has records with classes, but none of this class.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from shardwright.schemas.image_ref import NO_SPLIT
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import counted, percent

#: Minimum ratio of the two shares.
MIN_RATIO = 2.0
#: Probability of a warning by chance, over all comparisons of a dataset.
MAX_CHANCE = 0.01
#: Maximum number of classes that a sentence names, and of splits with a sentence of their own.
_NAMED, _SENTENCES = 3, 6
#: Maximum number of letters of a class name in a sentence.
_LETTERS = 60


class ClassShare(NamedTuple):
    """The number of records of a class in a split.

    Attributes:
      split: Name of the split.
      number: Number of its records with the class.
      records: Number of its records.
    """

    split: str
    number: int
    records: int

    @property
    def share(self) -> float:
        """Records of the class as a share of all records."""
        return self.number / self.records

    def __str__(self) -> str:
        share = percent(self.number, self.records)
        return f"{share} of {self.split} ({self.number:,} of {self.records:,})"


class UnevenClass(NamedTuple):
    """A class whose share differs between two splits.

    Attributes:
      name: Name of the class.
      more: Its share in the split that has more of it.
      less: Its share in the split that has less of it.
    """

    name: str
    more: ClassShare
    less: ClassShare

    def __str__(self) -> str:
        return f"{_shortened(self.name)} is {self.more} but {self.less}"


class MissingClasses(NamedTuple):
    """The classes that are missing from a split.

    Attributes:
      split: Name of the split.
      names: The classes, those with the most records in other splits first.
      classes: Number of classes of the dataset that have records.
    """

    split: str
    names: tuple[str, ...]
    classes: int

    def __str__(self) -> str:
        named = ", ".join(map(_shortened, self.names[:_NAMED]))
        if len(self.names) > _NAMED:
            named = f"such as {named}"
        return (
            f"Split {self.split} has no image of {len(self.names):,} of "
            f"{counted(self.classes, 'class')}: {named}."
        )


class SplitBalance(NamedTuple):
    """The differences between the classes of the splits.

    Attributes:
      uneven: The uneven classes, the largest difference of shares first.
      missing: The splits that lack classes, in the order of the dataset.
      classes: Number of classes that have records.
    """

    uneven: tuple[UnevenClass, ...] = ()
    missing: tuple[MissingClasses, ...] = ()
    classes: int = 0

    @property
    def sentences(self) -> list[str]:
        """Lines for a command to print; there are few of them, however many classes there are."""
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
            lines.append(counted(more, "more split lacks classes.", "more splits lack classes."))
        return lines


def totals_of(counts_of_parts: Mapping[Any, Mapping[str, int]]) -> Counter[str]:
    """Returns the number of records of each class, format or outcome in all splits or other parts."""
    totals: Counter[str] = Counter()
    for counts in counts_of_parts.values():
        totals.update(counts)
    return totals


def compare_splits(class_counts: Mapping[str, Mapping[str, int]], records: Mapping[str, int]) -> SplitBalance:
    """Finds classes that are spread unevenly over the splits, and classes that a split lacks.

    Ignores splits without records, and splits whose records have no classes.

    Args:
      class_counts: Split -> class -> records of the class.
      records: Split -> records.
    """
    counts = {
        split: {name: count for name, count in of_split.items() if count}
        for split, of_split in class_counts.items()
        if records.get(split) and any(of_split.values())
    }
    totals = totals_of(counts)
    if len(counts) < 2:
        return SplitBalance(classes=len(totals))
    largest = max(counts, key=lambda split: records[split])
    tests = len(totals) * (len(counts) - 1)
    differing: list[UnevenClass] = []
    missing = []
    for split, of_split in counts.items():
        lacking = totals.keys() - of_split.keys()
        if lacking:
            names = sorted(lacking, key=lambda name: (-totals[name], name))
            missing.append(MissingClasses(split, tuple(names), len(totals)))
        if split == largest:
            continue
        for name in of_split:
            if name in counts[largest]:
                both = (ClassShare(one, counts[one][name], records[one]) for one in (split, largest))
                less, more = sorted(both, key=lambda share: share.share)
                if _is_uneven(more, less, tests):
                    differing.append(UnevenClass(name, more, less))
    worst: dict[str, UnevenClass] = {}  # of each class
    for uneven in sorted(differing, key=lambda item: (item.less.share - item.more.share, item.name)):
        worst.setdefault(uneven.name, uneven)
    return SplitBalance(tuple(worst.values()), tuple(missing), len(totals))


def _is_uneven(more: ClassShare, less: ClassShare, tests: int) -> bool:
    """Returns whether two shares differ by `MIN_RATIO`, and by more than chance explains.

    If the records of both splits were distributed at random, each record of a class would be in the first
    split with probability `expected`. The Chernoff-Hoeffding bound on the probability of at least the
    observed number is exp(-count * KL), where KL is the relative entropy of the observed and the expected
    share. It is an upper bound for any counts, so small counts do not cause warnings by chance.
    """
    if more.share < MIN_RATIO * less.share:
        return False
    count = more.number + less.number
    share, expected = more.number / count, more.records / (more.records + less.records)
    entropy = share * math.log(share / expected)
    if share < 1:
        entropy += (1 - share) * math.log((1 - share) / (1 - expected))
    return math.log(2 * tests) - count * entropy < math.log(MAX_CHANCE)


def _shortened(name: str) -> str:
    text = repr(printable(name))
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS]}...'"


#: Maximum number of splits whose numbers a sentence names.
_NAMED_SPLITS = 6


class SplitNumber(NamedTuple):
    """The number of records of a split, or of a class in a split.

    Attributes:
      split: Name of the split.
      records: Number of records.
      wanted: Share of all records, which need not be a whole number.
      label: Name of the class; empty for all records.
    """

    split: str
    records: int
    wanted: Fraction
    label: str = ""

    def __str__(self) -> str:
        return f"{self.split} {self.records:,} (wanted {float(self.wanted):,.5g})"

    def as_json(self) -> dict[str, Any]:
        """Returns the two numbers as `run.json` stores them."""
        return {"records": self.records, "wanted": round(float(self.wanted), 3)}


class SplitShares(NamedTuple):
    """How far the splits meet their shares.

    Attributes:
      mode: The split mode, `exact` or `stratified`.
      splits: The numbers of records of the splits.
      worst: The class in a split that is farthest from its share, if each class should meet it.
    """

    mode: str
    splits: tuple[SplitNumber, ...]
    worst: SplitNumber | None = None

    @property
    def sentence(self) -> str:
        """The numbers as a line for people."""
        named = ", ".join(map(str, self.splits[:_NAMED_SPLITS]))
        more = f" and {len(self.splits) - _NAMED_SPLITS:,} more" if len(self.splits) > _NAMED_SPLITS else ""
        text = f"{self.mode} splits: {named}{more}"
        if self.worst is not None:
            text += f"; farthest from its share: class {_shortened(self.worst.label)}, {self.worst}"
        return text

    def as_json(self) -> dict[str, Any]:
        """Returns the numbers as `run.json` stores them."""
        document: dict[str, Any] = {
            "mode": self.mode,
            "splits": {item.split: item.as_json() for item in self.splits},
        }
        if self.worst is not None:
            worst = {"class": self.worst.label, "split": self.worst.split}
            document["worst_class"] = {**worst, **self.worst.as_json()}
        return document


def compare_shares(
    mode: str,
    shares: Mapping[str, Fraction],
    records: Mapping[str, int],
    class_counts: Mapping[str, Mapping[str, int]],
) -> SplitShares:
    """Compares numbers of records with the shares of the splits.

    Args:
      mode: The split mode.
      shares: Split -> share.
      records: Split -> number of records.
      class_counts: Split -> class -> number of records.
    """

    def numbers(counts: Mapping[str, int], label: str = "") -> tuple[SplitNumber, ...]:
        total = sum(counts.get(split, 0) for split in shares)
        return tuple(
            SplitNumber(split, counts.get(split, 0), share * total, label) for split, share in shares.items()
        )

    labels = sorted(totals_of(class_counts)) if mode == "stratified" else ()
    of_classes = (
        numbers({split: counts.get(label, 0) for split, counts in class_counts.items()}, label)
        for label in labels
    )
    farthest = max(
        chain.from_iterable(of_classes), key=lambda item: abs(item.records - item.wanted), default=None
    )
    return SplitShares(mode, numbers(records), farthest)


Value = TypeVar("Value")

#: Usual names of splits, in the order in which they are used.
_RANKS = {
    **dict.fromkeys(("train", "training"), 0),
    **dict.fromkeys(("validation", "val", "valid", "dev", "development", "eval", "evaluation"), 1),
    **dict.fromkeys(("test", "testing"), 2),
}


def in_split_order(names: Iterable[str]) -> list[str]:
    """Returns the names of splits in order: train, validation, test, others alphabetically, then `none`."""
    return sorted(names, key=lambda name: (name == NO_SPLIT, _RANKS.get(name.lower(), len(_RANKS)), name))


def by_split(values: Mapping[str, Value]) -> dict[str, Value]:
    """Returns a mapping of splits in the order of the splits."""
    return {name: values[name] for name in in_split_order(values)}
