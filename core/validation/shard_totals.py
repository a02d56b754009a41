"""Totals of a validation's shards, which decide the number of buckets of rows."""

from __future__ import annotations

from dataclasses import dataclass

from shardwright.core.hash_buckets import bucket_count
from shardwright.core.validation.duplicate_keys import buckets_of_rows
from shardwright.core.validation.shard import ShardTask


@dataclass(slots=True)
class ShardTotals:
    """Totals over shards.

    Attributes:
      shards: Number of shards.
      unknown: Number of shards whose number of records is not stated.
      records: Stated number of records in all others.
    """

    shards: int = 0
    unknown: int = 0
    records: int = 0

    def add(self, task: ShardTask) -> None:
        """Adds a shard."""
        self.shards += 1
        if task.expected is None:
            self.unknown += 1
        else:
            self.records += task.expected.records

    def merge(self, other: ShardTotals) -> None:
        """Adds other shards."""
        self.shards += other.shards
        self.unknown += other.unknown
        self.records += other.records

    @property
    def buckets(self) -> int:
        """Number of buckets for images, which are larger than rows."""
        return bucket_count(self.shards)

    @property
    def buckets_of_rows(self) -> int:
        """Number of buckets for rows of records."""
        return self.buckets if self.unknown else buckets_of_rows(self.records)
