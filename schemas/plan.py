"""The plan of a dataset: what is carried from one build to the next, and what one build adds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_SHARDS = 99_999
_SPLIT_NAME = re.compile(r"[A-Za-z0-9_]+\Z")


@dataclass(frozen=True)
class Plan:
    """What places every image, stored in `dataset.json` and carried on by rebuilds.

    Attributes:
      labels: class names in id order.
      shards: number of shards per split.
      estimate: estimated output bytes per split, from which the numbers of shards were chosen.
      settings: the settings that can change a byte of the dataset.
    """

    labels: tuple[str, ...]
    shards: Mapping[str, int]
    estimate: Mapping[str, int]
    settings: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Returns the plan as `dataset.json` stores it."""
        return {
            "labels": list(self.labels),
            "shards": dict(self.shards),
            "estimate": dict(self.estimate),
            "settings": dict(self.settings),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Plan:
        """Reads what `as_json` wrote.

        Raises:
          KeyError, TypeError, ValueError or AttributeError: for anything else.
        """
        plan = Plan(
            labels=tuple(value["labels"]),
            shards={str(name): int(count) for name, count in value["shards"].items()},
            estimate={str(name): int(size) for name, size in value["estimate"].items()},
            settings=dict(value["settings"]),
        )
        if not isinstance(value["labels"], list) or not all(isinstance(name, str) for name in plan.labels):
            raise TypeError("the labels are no list of names")
        if len(set(plan.labels)) != len(plan.labels):
            raise ValueError("a label stands twice")
        for name, count in plan.shards.items():
            if not _SPLIT_NAME.match(name) or not 0 < count <= MAX_SHARDS:
                raise ValueError(f"{count} shards in split {name!r}")
        return plan


@dataclass(frozen=True)
class Forecast:
    """What one build is going to write: its plan, and what was counted and sampled for it.

    Attributes:
      plan: the plan.
      candidates: images to convert, per split.
      listed: files listed, per split.
      filtered: files left out as no candidates, per reason.
      deduplicated: images left out as copies of another.
      source_bytes: bytes of the candidates' sources.
      class_counts: candidates per class name.
      sampled: images of the sample.
      sample_faults: quarantine reason -> count in the sample.
      limit_cut: (hash, key) of the last image taken under a limit, or None.
      class_names_given: whether labels outside the plan are faults.
      warnings: sentences for the user.
    """

    plan: Plan
    candidates: Mapping[str, int]
    listed: Mapping[str, int]
    filtered: Mapping[str, int]
    deduplicated: int
    source_bytes: int
    class_counts: Mapping[str, int]
    sampled: int
    sample_faults: Mapping[str, int]
    limit_cut: tuple[int, str] | None = None
    class_names_given: bool = False
    warnings: tuple[str, ...] = field(default=())

    @property
    def total(self) -> int:
        """Images to convert in all splits."""
        return sum(self.candidates.values())

    def as_json(self) -> dict[str, Any]:
        """Returns the forecast as `plan` prints it."""
        return {
            "plan": self.plan.as_json(),
            "candidates": dict(self.candidates),
            "listed": dict(self.listed),
            "filtered": dict(self.filtered),
            "deduplicated": self.deduplicated,
            "source_bytes": self.source_bytes,
            "class_counts": dict(self.class_counts),
            "sampled": self.sampled,
            "sample_faults": dict(self.sample_faults),
            "warnings": list(self.warnings),
        }


def shard_file(split: str, shard: int, num_shards: int, suffix: str) -> str:
    """Returns a shard's file name, such as `train-00000-of-00016.tfrecord`."""
    return f"{split}-{shard:05d}-of-{num_shards:05d}{suffix}"


def ledger_file(split: str, shard: int, num_shards: int) -> str:
    """Returns a shard ledger's path inside the dataset directory."""
    return f"_shards/{split}-{shard:05d}-of-{num_shards:05d}.jsonl.gz"
