"""The changes of images between two datasets: counts of each kind, and some examples of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.split_order import in_split_order

#: Number of changes of each kind to list, those with the smallest keys; further changes are only counted.
MAX_LISTED = 1000
#: Number of pairs of old and new classes to list, the most frequent ones.
MAX_PAIRS = 1000


class Kind(StrEnum):
    """Kind of change of an image. A renamed image can also be changed, relabelled or moved."""

    ADDED = "added"
    REMOVED = "removed"
    RENAMED = "renamed"
    CHANGED = "changed"
    RE_ENCODED = "re_encoded"
    RELABELLED = "relabelled"
    MOVED = "moved"


class Change(NamedTuple):
    """A change of one image.

    Attributes:
      key: Key of the image in the new dataset, or in the old one if the image was removed.
      old: For an added image, why the old dataset left it out (empty if the image was not listed); for a
        removed image, its split; else the old value of what changed: key, source checksum, stored form,
        classes or split.
      new: The same for the new dataset, where a removed image is one that was left out.
    """

    key: str
    old: str
    new: str


@dataclass
class Changes:
    """Counts of changes; they can be merged.

    Attributes:
      unchanged: Number of images without a change.
      counts: (kind, split) -> images. The split is the new one; for removed images, the old one.
      listed: Kind -> changes; `settle` keeps those with the smallest keys.
      moves: (old split, new split) -> images.
      relabels: (old classes, new classes) -> images; several classes are joined by `LABEL_SEPARATOR`.
      pairs: Number of different `relabels`, if only the most frequent are kept.
    """

    unchanged: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    listed: dict[str, list[Change]] = field(default_factory=dict)
    moves: Counter[tuple[str, str]] = field(default_factory=Counter)
    relabels: Counter[tuple[str, str]] = field(default_factory=Counter)
    pairs: int = 0

    def note(self, kind: Kind, split: str, change: Change) -> None:
        """Adds one change."""
        self.counts[kind.value, split] += 1
        listed = self.listed.setdefault(kind.value, [])
        listed.append(change)
        if len(listed) > 2 * MAX_LISTED:
            self.settle()

    def settle(self) -> None:
        """Drops all changes except those to list."""
        self.listed = {kind: sorted(found)[:MAX_LISTED] for kind, found in self.listed.items()}

    def merge(self, other: Changes) -> None:
        """Adds the changes of other images."""
        self.unchanged += other.unchanged
        self.counts.update(other.counts)
        self.moves.update(other.moves)
        self.relabels.update(other.relabels)
        for kind, found in other.listed.items():
            self.listed.setdefault(kind, []).extend(found)
        self.settle()

    def total(self, kind: Kind) -> int:
        """Number of images with one kind of change in all splits."""
        return sum(count for (name, _), count in self.counts.items() if name == kind)

    def in_split(self, kind: Kind, split: str) -> int:
        """Number of images with one kind of change in a split."""
        return self.counts.get((kind.value, split), 0)

    def as_json(self) -> dict[str, Any]:
        """Returns the changes as a report stores them."""
        self.settle()
        splits = in_split_order({split for _, split in self.counts})
        return {
            "unchanged": self.unchanged,
            **{kind.value: self.total(kind) for kind in Kind},
            "splits": {split: {kind.value: self.in_split(kind, split) for kind in Kind} for split in splits},
            "split_moves": [
                {"from": old, "to": new, "images": count} for (old, new), count in sorted(self.moves.items())
            ],
            "label_changes": {
                "pairs": max(self.pairs, len(self.relabels)),
                "most_frequent": [
                    {"from": _names(old), "to": _names(new), "images": count}
                    for (old, new), count in most_frequent(self.relabels)
                ],
            },
            "listed": {
                kind.value: [
                    {"key": key, "old": _names(old), "new": _names(new)}
                    if kind is Kind.RELABELLED
                    else {"key": key, "old": old, "new": new}
                    for key, old, new in self.listed.get(kind.value, ())
                ]
                for kind in Kind
            },
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Changes:
        """Reads the result of `as_json`."""
        return Changes(
            unchanged=value["unchanged"],
            counts=Counter(
                {
                    (kind, split): count
                    for split, counts in value["splits"].items()
                    for kind, count in counts.items()
                    if count
                }
            ),
            listed={
                kind: [Change(*(_joined(item[name]) for name in Change._fields)) for item in found]
                for kind, found in value["listed"].items()
                if found
            },
            moves=Counter({(item["from"], item["to"]): item["images"] for item in value["split_moves"]}),
            relabels=Counter(
                {
                    (_joined(item["from"]), _joined(item["to"])): item["images"]
                    for item in value["label_changes"]["most_frequent"]
                }
            ),
            pairs=value["label_changes"]["pairs"],
        )


def most_frequent(relabels: Mapping[tuple[str, str], int]) -> list[tuple[tuple[str, str], int]]:
    """Returns the most frequent pairs of old and new classes; equally frequent ones are sorted by name."""
    return sorted(relabels.items(), key=lambda item: (-item[1], item[0]))[:MAX_PAIRS]


def _names(label: str) -> list[str]:
    return label.split(LABEL_SEPARATOR) if label else []


def _joined(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else LABEL_SEPARATOR.join(value)
