"""Compares the numbers of records of the splits, and of each class in them, with the wanted shares."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from shardwright.schemas.image_ref import printable

#: Maximum number of letters of a class name in a sentence, and of splits that it names.
_LETTERS, _NAMED = 60, 6


class SplitNumber(NamedTuple):
    """The number of records of a split, or of a class in a split.

    Attributes:
      split: Name of the split.
      records: Number of records.
      wanted: Share of all records, which need not be a whole number.
      label: Name of the class; None for all records.
    """

    split: str
    records: int
    wanted: float
    label: str | None = None

    def __str__(self) -> str:
        return f"{self.split} {self.records:,} (wanted {self.wanted:,.5g})"


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
        named = ", ".join(map(str, self.splits[:_NAMED]))
        more = f" and {len(self.splits) - _NAMED:,} more" if len(self.splits) > _NAMED else ""
        text = f"{self.mode} splits: {named}{more}"
        if self.worst is not None and self.worst.label is not None:
            shown = repr(printable(self.worst.label))
            shown = shown if len(shown) <= _LETTERS else f"{shown[:_LETTERS]}...'"
            text += f"; farthest from its share: class {shown}, {self.worst}"
        return text

    def as_json(self) -> dict[str, Any]:
        """Returns the numbers as `run.json` stores them."""
        found: dict[str, Any] = {
            "mode": self.mode,
            "splits": {
                item.split: {"records": item.records, "wanted": round(item.wanted, 3)} for item in self.splits
            },
        }
        if self.worst is not None:
            found["worst_class"] = {
                "class": self.worst.label,
                "split": self.worst.split,
                "records": self.worst.records,
                "wanted": round(self.worst.wanted, 3),
            }
        return found


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
    total = sum(records.get(split, 0) for split in shares)
    splits = tuple(
        SplitNumber(split, records.get(split, 0), float(share * total)) for split, share in shares.items()
    )
    if mode != "stratified":
        return SplitShares(mode, splits)
    names = sorted({name for split in shares for name in class_counts.get(split, ())})
    worst, largest = None, Fraction(-1)
    for name in names:
        counts = {split: class_counts.get(split, {}).get(name, 0) for split in shares}
        of_class = sum(counts.values())
        for split, share in shares.items():
            deviation = abs(counts[split] - share * of_class)
            if deviation > largest:
                largest = deviation
                worst = SplitNumber(split, counts[split], float(share * of_class), name)
    return SplitShares(mode, splits, worst)
