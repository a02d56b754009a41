"""Sums over the lines of a shard's ledger: the counts in its header."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from shardwright.schemas.codes import Outcome
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.ledger import Entry, ShardHeader
from shardwright.schemas.statistics.sketches import Moments

#: Maximum number of images for which a shard says why boxes were dropped.
_SHOWN = 3
#: Plain strings, because looking up a member of an enumeration takes longer than comparing it.
_WRITTEN, _DEDUPLICATED = Outcome.WRITTEN.value, Outcome.DEDUPLICATED.value
_MEASURES = ("width", "height", "bytes")


class SourceSizes:
    """Minimum, maximum and mean of width, height and number of bytes of some sources, added in any order.

    Attributes:
      moments: width, height and bytes -> the moments of their values.
    """

    def __init__(self) -> None:
        self.moments = {name: Moments() for name in _MEASURES}

    def add(self, entry: Entry) -> None:
        """Adds the sizes in an entry of a ledger, if it has any."""
        width, height, size = entry.source_width, entry.source_height, entry.source_bytes
        if isinstance(width, int) and isinstance(height, int) and isinstance(size, int):
            moments = self.moments
            moments["width"].add(width or 0)
            moments["height"].add(height or 0)
            moments["bytes"].add(size or 0)

    @property
    def images(self) -> int:
        """Number of images with known sizes."""
        return self.moments["bytes"].count

    def merge(self, other: SourceSizes) -> SourceSizes:
        """Adds the sizes of others; returns itself."""
        for name, moment in self.moments.items():
            moment.merge(other.moments[name])
        return self

    def state(self) -> dict[str, Any]:
        """Returns the form that a ledger stores; empty if there are no sizes."""
        return {name: moment.state() for name, moment in self.moments.items()} if self.images else {}

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> SourceSizes:
        """Reads the result of `state`.

        Raises:
          KeyError, TypeError, ValueError or IndexError: if it is not such a result.
        """
        sizes = SourceSizes()
        if state:
            sizes.moments = {name: Moments.from_state(state[name]) for name in _MEASURES}
        return sizes

    def as_json(self) -> dict[str, Any]:
        """Returns the entry for `run.json`: the number of images, and the moments of each measure."""
        measured = {
            name: {**moment.as_json(), "sum": int(moment.sum)}
            for name, moment in self.moments.items()
            if moment.count
        }
        return {"images": self.images, **measured}


class ShardTotals:
    """Adds up the entries of one shard; its memory grows only with the number of classes."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._reasons: dict[str, Counter[str]] = {}
        self._classes: Counter[str] = Counter()
        self._formats: Counter[str] = Counter()
        self._boxes: Counter[str] = Counter()
        self._folds: Counter[int] = Counter()
        self._sources = SourceSizes()
        self._kept = self._animated = self._damaged = self._warned = 0
        self._bad_boxes: list[str] = []
        self._multiplied = 0
        self._private: Counter[str] = Counter()
        self._dtypes: Counter[str] = Counter()
        self._source_key = ""

    def add(self, entry: Entry) -> None:
        """Adds an entry.

        Raises:
          TypeError, ValueError or AttributeError: if one of its values has a wrong type.
        """
        outcome = entry.outcome
        self._counts[outcome] += 1
        # The images that were made of one source follow each other.
        self._multiplied += bool(entry.source_key) and entry.source_key == self._source_key
        self._source_key = entry.source_key
        if outcome == _WRITTEN:
            if entry.label:
                for name in entry.label.split(LABEL_SEPARATOR):
                    self._classes[name] += 1
            if entry.message and len(self._bad_boxes) < _SHOWN:
                self._bad_boxes.append(f"{entry.key} ({entry.message})")
        elif outcome != _DEDUPLICATED:
            self._reasons.setdefault(outcome, Counter())[entry.reason] += 1
        if entry.format:
            self._formats[entry.format] += 1
        if entry.private:
            self._private.update(entry.private.split(","))
        if entry.dtype:
            self._dtypes[entry.dtype] += 1
        if entry.boxes:
            self._boxes.update(entry.boxes)
        if entry.fold is not None:
            self._folds[entry.fold] += 1
        self._sources.add(entry)
        self._kept += entry.stored == "kept"
        self._animated += bool(entry.animated)
        self._damaged += bool(entry.damaged)
        self._warned += bool(entry.decoder_warning) and not entry.damaged

    def header(self, split: str, shard: int, num_shards: int) -> ShardHeader:
        """Returns the totals as a header, without the fields that need the shard's file.

        Args:
          split: Split of the shard.
          shard: Number of the shard, from 0.
          num_shards: Number of shards in the split.
        """
        return ShardHeader(
            file="",
            split=split,
            shard=shard,
            num_shards=num_shards,
            plan_digest="",
            records=self._counts[Outcome.WRITTEN],
            bytes=0,
            sha256="",
            counts=dict(self._counts),
            reasons={name: dict(sorted(found.items())) for name, found in sorted(self._reasons.items())},
            class_counts=dict(sorted(self._classes.items())),
            kept=self._kept,
            animated=self._animated,
            damaged=self._damaged,
            warned=self._warned,
            boxes=dict(sorted(self._boxes.items())),
            formats=dict(sorted(self._formats.items())),
            bad_boxes=tuple(self._bad_boxes),
            sources=self._sources.state(),
            multiplied=self._multiplied,
            folds={str(fold): count for fold, count in sorted(self._folds.items())},
            private=dict(sorted(self._private.items())),
            dtypes=dict(sorted(self._dtypes.items())),
        )
