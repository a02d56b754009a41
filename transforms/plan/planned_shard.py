"""`PlannedShard`: a shard to write, with the references of its images. Does not need Beam."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from shardwright.schemas.image_ref import EncodedRefs

ShardId = tuple[str, int]


class PlannedShard(NamedTuple):
    """A shard to write: its split, its number from 0, the split's number of shards, and its references."""

    split: str
    shard: int
    num_shards: int
    refs: Iterable[EncodedRefs]
