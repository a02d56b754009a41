"""The plan of a dataset, which later builds continue, and the forecast of one build."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Any, NamedTuple

from shardwright.schemas.json_values import fields_json, from_json
from shardwright.schemas.key_rules import KeyRules
from shardwright.schemas.layouts import Layout, inline_layout
from shardwright.schemas.splits import SplitBalance, SplitShares, compare_shares, compare_splits
from shardwright.schemas.units import SPLIT_NAME, counted, parse_splits

MAX_SHARDS = 99_999


#: Number of buckets of hashes where whole buckets are given to parts.
BUCKETS = 1024
#: Numbers of the parts in the table of buckets, one character each.
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
#: Number of different hashes, which are integers from 0.
HASH_RANGE = 1 << 64


@dataclass(frozen=True)
class PartBounds:
    """How the hashes of images are divided into parts. A plan stores it, so that no image moves later.

    A scope is what is divided: the split whose folds these are, or "" for all images that get a split.

    Attributes:
      bounds: Scope -> class name, or "" for all classes -> exclusive upper bound of the hashes of each part
        but the last.
      buckets: Scope -> number of the part of each of `BUCKETS` equal ranges of hashes, as one of `DIGITS`.
    """

    bounds: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    buckets: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Returns the bounds as `dataset.json` stores them: hashes are hexadecimal text."""
        bounds = {
            scope: {name: [f"{bound:x}" for bound in of_class] for name, of_class in classes.items()}
            for scope, classes in self.bounds.items()
        }
        value = {"bounds": bounds, "buckets": dict(self.buckets)}
        return {name: item for name, item in value.items() if item}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> PartBounds:
        """Reads the result of `as_json`.

        Raises:
          TypeError, ValueError or AttributeError: if it is not such a result.
        """
        bounds = {
            scope: {name: tuple(int(bound, 16) for bound in texts) for name, texts in classes.items()}
            for scope, classes in value.get("bounds", {}).items()
        }
        for name, hashes in chain.from_iterable(classes.items() for classes in bounds.values()):
            if list(hashes) != sorted(hashes) or not all(0 <= bound <= HASH_RANGE for bound in hashes):
                raise ValueError(f"the bounds of {name!r} are not hashes in order")
        buckets = dict(value.get("buckets", {}))
        for scope, text in buckets.items():
            if type(text) is not str or len(text) != BUCKETS or not set(text) <= set(DIGITS):
                raise ValueError(f"the buckets of {scope!r} are not {BUCKETS} numbers of parts")
        return PartBounds(bounds, buckets)

    def check_parts(self, count: int) -> None:
        """Checks that these are the bounds of that many parts.

        Raises:
          ValueError: If they are not.
        """
        bounds = chain.from_iterable(classes.values() for classes in self.bounds.values())
        numbers = set().union(*self.buckets.values())
        if any(len(of_class) != count - 1 for of_class in bounds) or not numbers <= set(DIGITS[:count]):
            raise ValueError(f"the bounds are not those of {count} parts")


@dataclass(frozen=True)
class Plan:
    """Everything that decides the place of an image. `dataset.json` stores it, and rebuilds continue it.

    Attributes:
      labels: Class names in the order of ids.
      shards: Number of shards per split.
      estimate: Estimated output bytes per split, from which the number of shards was chosen.
      settings: The settings that can change a byte of the dataset.
      texts: Readable names of classes whose names are synset ids, in the order of ids, empty for a class
        without one; no texts unless the layout stores both.
      unused_ids: Ids without a class, such as 2 to 16 if COCO's ids are 1 and 17. `labels` has the number
        instead of a name for these.
      split_bounds: Bounds of the splits, unless `--splits` alone decides them.
      fold_bounds: Bounds of the folds of each split, unless `--folds` alone decides them.
    """

    labels: tuple[str, ...]
    shards: Mapping[str, int]
    estimate: Mapping[str, int]
    settings: Mapping[str, Any]
    texts: tuple[str, ...] = ()
    unused_ids: tuple[int, ...] = ()
    split_bounds: PartBounds | None = None
    fold_bounds: PartBounds | None = None

    def split_shares(
        self, records: Mapping[str, int], class_counts: Mapping[str, Mapping[str, int]]
    ) -> SplitShares | None:
        """Returns how far splits meet their shares; None if the plan does not choose exact splits.

        Args:
          records: Split -> number of records.
          class_counts: Split -> class -> number of records.
        """
        bounds = self.split_bounds
        if bounds is None or not (bounds.bounds or bounds.buckets):
            return None
        shares = parse_splits(str(self.settings["splits"]))
        return compare_shares(str(self.settings["split_mode"]), shares, records, class_counts)

    @property
    def text_of(self) -> dict[str, str]:
        """Class name -> readable name, if it differs from the name."""
        return {name: text for name, text in zip(self.labels, self.texts) if text}

    @property
    def label_texts(self) -> tuple[str, ...]:
        """Class names as records state them, in the order of ids: the readable name, or else the name."""
        return tuple(text or name for name, text in zip(self.labels, self.texts or self.labels))

    def classes(self, first_label: int) -> dict[int, str]:
        """Returns id -> class name, in the order of ids, without unused ids.

        Args:
          first_label: Id of the first class.
        """
        unused = set(self.unused_ids)
        return {number: name for number, name in enumerate(self.labels, first_label) if number not in unused}

    def as_json(self) -> dict[str, Any]:
        """Returns the plan as `dataset.json` stores it."""
        value = {**fields_json(self), "settings": settings_json(self.settings)}
        return {name: item for name, item in value.items() if item not in ([], None) or name == "labels"}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Plan:
        """Reads the result of `as_json`.

        Raises:
          KeyError, TypeError, ValueError or AttributeError: if it is not such a result.
        """
        settings = dict(value["settings"])
        if isinstance(settings.get("layout"), Mapping):
            settings["layout"] = inline_layout(from_json(Layout, settings["layout"]))
        plan = from_json(Plan, {**value, "settings": settings})
        if len(set(plan.labels)) != len(plan.labels):
            raise ValueError("a label occurs twice")
        if plan.texts and len(plan.texts) != len(plan.labels):
            raise ValueError("the number of texts is not that of the labels")
        if plan.split_bounds is not None:
            plan.split_bounds.check_parts(len(parse_splits(str(settings["splits"]))))
        if plan.fold_bounds is not None:
            plan.fold_bounds.check_parts(settings["folds"])
        for name, count in plan.shards.items():
            if not SPLIT_NAME.match(name) or not 0 < count <= MAX_SHARDS:
                raise ValueError(f"{counted(count, 'shard')} in split {name!r}")
        return plan


def settings_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings as `dataset.json` stores them: a custom layout becomes a readable object."""
    layout = settings.get("layout")
    if isinstance(layout, str) and layout.startswith("{"):
        return {**settings, "layout": json.loads(layout)}
    return dict(settings)


class SplitsFrom(StrEnum):
    """How the split of an image is chosen."""

    HASH = "hash"
    SOURCE = "source"
    BOTH = "both"


@dataclass(frozen=True)
class Forecast:
    """What one build will write: its plan, and the counts and the sample behind it.

    Attributes:
      plan: The plan.
      candidates: Number of images to convert, per split.
      listed: Number of files listed, per split.
      filtered: Number of files that are not candidates, per reason.
      deduplicated: Number of images left out as copies of another.
      source_bytes: Total size of the candidates' sources.
      class_counts: Number of candidates per class name.
      sampled: Number of images in the sample.
      sample_faults: Quarantine reason -> count in the sample.
      moved: Split -> hash -> shard of images that fill a shard that would otherwise be empty. Only
        `AssignShards` knows these.
      warnings: Sentences for the user.
      split_class_counts: Number of candidates per split and class name.
      keys: Rules of `--include` and `--exclude`.
      splits_from: Whether the source names the splits, or `--splits` and a hash choose them.
    """

    plan: Plan
    candidates: Mapping[str, int]
    listed: Mapping[str, int] = field(default_factory=dict)
    filtered: Mapping[str, int] = field(default_factory=dict)
    deduplicated: int = 0
    source_bytes: int = 0
    class_counts: Mapping[str, int] = field(default_factory=dict)
    sampled: int = 0
    sample_faults: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = field(default=())
    split_class_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    splits_from: SplitsFrom = SplitsFrom.HASH
    moved: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    keys: KeyRules = field(default_factory=KeyRules)

    @property
    def balance(self) -> SplitBalance:
        """How evenly the classes will be spread over the splits."""
        return compare_splits(self.split_class_counts, self.candidates)

    @property
    def split_shares(self) -> SplitShares | None:
        """How far the splits will meet their shares; None if `--splits` alone decides them."""
        return self.plan.split_shares(self.candidates, self.split_class_counts)

    @property
    def tree(self) -> str:
        """The content of the input, and what is left out: `3 splits x 10 classes, 3,781 images`.

        Splits are counted here only if the source names them.
        """
        classes = sum(count > 0 for count in self.class_counts.values())
        parts = [counted(classes, "class")] if classes else []
        if self.splits_from is not SplitsFrom.HASH:
            parts.insert(0, counted(sum(count > 0 for count in self.candidates.values()), "split"))
        text = ", ".join(filter(None, (" x ".join(parts), counted(self.total, "image"))))
        filtered = sum(self.filtered.values())
        bad = sum(self.listed.values()) - self.total - filtered - self.deduplicated
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.filtered.items())
        left_out = [
            f"{counted(filtered, 'file')} ({reasons})" if filtered else "",
            counted(bad, "bad image") if bad else "",
            f"{counted(self.deduplicated, 'copy')}" if self.deduplicated else "",
        ]
        return "; left out: ".join(filter(None, (text, ", ".join(filter(None, left_out)))))

    @property
    def total(self) -> int:
        """Number of images to convert in all splits."""
        return sum(self.candidates.values())

    def as_json(self) -> dict[str, Any]:
        """Returns the forecast as `plan` prints it."""
        value = fields_json(self)
        value["warnings"] += self.balance.sentences
        return {name: item for name, item in value.items() if name not in ("moved", "keys")}


class ShardPlace(NamedTuple):
    """A shard's split, its number from 0, and the number of shards in the split."""

    split: str
    shard: int
    num_shards: int


def shard_file(split: str, shard: int, num_shards: int, suffix: str) -> str:
    """Returns a shard's file name, such as `train-00000-of-00016.tfrecord`."""
    return f"{split}-{shard:05d}-of-{num_shards:05d}{suffix}"


def is_compressed(file: str) -> bool:
    """Whether the shard with a name from `shard_file` is compressed."""
    return file.endswith((".gz", ".zlib"))


def ledger_file(split: str, shard: int, num_shards: int) -> str:
    """Returns a shard ledger's path inside the dataset directory."""
    return f"_shards/{split}-{shard:05d}-of-{num_shards:05d}.jsonl.gz"


def index_file(split: str, shard: int, num_shards: int) -> str:
    """Returns the path of an uncompressed shard's index inside the dataset directory."""
    return f"_index/{split}-{shard:05d}-of-{num_shards:05d}.idx"
