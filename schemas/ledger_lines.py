"""Collects the lines of a shard's ledger, in a fraction of the memory of its entries, and sums them up."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from shardwright.schemas.codes import Outcome
from shardwright.schemas.image_ref import LABEL_SEPARATOR
from shardwright.schemas.json_values import fields_json
from shardwright.schemas.ledger import (
    Entry,
    ShardHeader,
    dump_index,
    entry_lines,
    pack_ledger,
)
from shardwright.schemas.statistics.sketches import Moments

#: Maximum number of images for which a shard says why boxes were dropped.
_SHOWN = 3
#: Plain strings, because looking up a member of an enumeration takes longer than comparing it.
_WRITTEN, _DEDUPLICATED = Outcome.WRITTEN.value, Outcome.DEDUPLICATED.value


@dataclass
class SourceSizes:
    """Minimum, maximum and mean of width, height and number of bytes of some sources, added in any order."""

    width: Moments = field(default_factory=Moments)
    height: Moments = field(default_factory=Moments)
    bytes: Moments = field(default_factory=Moments)

    def add(self, entry: Entry) -> None:
        """Adds the sizes in an entry of a ledger, if it has any."""
        width, height, size = entry.source_width, entry.source_height, entry.source_bytes
        if isinstance(width, int) and isinstance(height, int) and isinstance(size, int):
            self.width.add(width or 0)
            self.height.add(height or 0)
            self.bytes.add(size or 0)

    @property
    def images(self) -> int:
        """Number of images with known sizes."""
        return self.bytes.count

    def merge(self, other: SourceSizes) -> SourceSizes:
        """Adds the sizes of others; returns itself."""
        self.width.merge(other.width)
        self.height.merge(other.height)
        self.bytes.merge(other.bytes)
        return self

    def as_json(self) -> dict[str, Any]:
        """Returns the form that a ledger stores; empty if there are no sizes."""
        return fields_json(self) if self.images else {}

    def summary(self) -> dict[str, Any]:
        """Returns the entry for `run.json`: the number of images, and the moments of each measure."""
        measured = {"width": self.width, "height": self.height, "bytes": self.bytes}
        return {
            "images": self.images,
            **{
                name: {**moments.summary(), "sum": int(moments.sum)}
                for name, moments in measured.items()
                if moments.count
            },
        }


@dataclass
class ShardTotals:
    """Adds up the entries of one shard; its memory grows only with the number of classes.

    The sums have the names that they have in `ShardHeader`.
    """

    counts: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, Counter[str]] = field(default_factory=dict)
    class_counts: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    animated: int = 0
    damaged: int = 0
    warned: int = 0
    boxes: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    bad_boxes: tuple[str, ...] = ()
    sources: SourceSizes = field(default_factory=SourceSizes)
    multiplied: int = 0
    folds: Counter[str] = field(default_factory=Counter)
    private: Counter[str] = field(default_factory=Counter)
    dtypes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Begins without an entry before."""
        self._source_key = ""

    def add(self, entry: Entry) -> None:
        """Adds an entry.

        Raises:
          TypeError, ValueError or AttributeError: if one of its values has a wrong type.
        """
        outcome = entry.outcome
        self.counts[outcome] += 1
        # The images that were made of one source follow each other.
        self.multiplied += bool(entry.source_key) and entry.source_key == self._source_key
        self._source_key = entry.source_key
        if outcome == _WRITTEN:
            if entry.label:
                for name in entry.label.split(LABEL_SEPARATOR):
                    self.class_counts[name] += 1
            if entry.message and len(self.bad_boxes) < _SHOWN:
                self.bad_boxes += (f"{entry.key} ({entry.message})",)
        elif outcome != _DEDUPLICATED:
            self.reasons.setdefault(outcome, Counter())[entry.reason] += 1
        if entry.format:
            self.formats[entry.format] += 1
        if entry.private:
            self.private.update(entry.private.split(","))
        if entry.dtype:
            self.dtypes[entry.dtype] += 1
        if entry.boxes:
            self.boxes.update(entry.boxes)
        if entry.fold is not None:
            self.folds[str(entry.fold)] += 1
        self.sources.add(entry)
        self.kept += entry.stored == "kept"
        self.animated += bool(entry.animated)
        self.damaged += bool(entry.damaged)
        self.warned += bool(entry.decoder_warning) and not entry.damaged

    def header(self, split: str, shard: int, num_shards: int) -> ShardHeader:
        """Returns the totals as a header, without the fields that need the shard's file.

        Args:
          split: Split of the shard.
          shard: Number of the shard, from 0.
          num_shards: Number of shards in the split.
        """
        sums = {item.name: _in_order(getattr(self, item.name)) for item in fields(self)}
        return ShardHeader(
            file="",
            split=split,
            shard=shard,
            num_shards=num_shards,
            plan_digest="",
            records=self.counts[Outcome.WRITTEN],
            bytes=0,
            sha256="",
            **{**sums, "sources": self.sources.as_json()},
        )


def _in_order(sums: Any) -> Any:
    """Returns sums with the names of mappings in order."""
    return {name: _in_order(sums[name]) for name in sorted(sums)} if isinstance(sums, dict) else sums


#: Number of entries that are turned into lines and compressed at once.
ENTRIES_TOGETHER = 4096


class LedgerLines:
    """The lines of a shard's ledger and their sums.

    The header is the first line of the file and has the sums of all others, so the lines have to wait for it.
    A shard has 100,000 records at most, but any number of files may be left out.
    """

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._packed: list[bytes] = []
        self._index: list[bytes] = []
        self._totals = ShardTotals()

    @staticmethod
    def of(entries: Iterable[Entry]) -> LedgerLines:
        """Returns the lines of all entries of a shard."""
        lines = LedgerLines()
        for entry in entries:
            lines.add(entry)
        return lines

    def add(self, entry: Entry) -> None:
        """Adds an entry."""
        self._entries.append(entry)
        if len(self._entries) >= ENTRIES_TOGETHER:
            self._settle()

    def _settle(self) -> None:
        if self._entries:
            entries, self._entries = self._entries, []
            for entry in entries:
                self._totals.add(entry)
            self._index.append(dump_index(entries))
            self._packed.append(zlib.compress(entry_lines(entries), 1))

    def header(self, split: str, shard: int, num_shards: int) -> ShardHeader:
        """Returns the header with the sums, without the fields that need the shard's file.

        Args:
          split: Split of the shard.
          shard: Number of the shard, from 0.
          num_shards: Number of shards in the split.
        """
        self._settle()
        return self._totals.header(split, shard, num_shards)

    @property
    def index(self) -> bytes:
        """The index of the shard's records (`dump_index`)."""
        self._settle()
        return b"".join(self._index)

    def dump(self, header: ShardHeader) -> bytes:
        """Returns the ledger file."""
        self._settle()
        return pack_ledger(header, map(zlib.decompress, self._packed))
