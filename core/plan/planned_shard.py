"""`PlannedShard`: a shard to write, with the references of its images."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from shardwright.schemas.image_ref import EncodedRefs

ShardId = tuple[str, int]


class ShardDigests(NamedTuple):
    """Digests of a planned shard that one step has computed for the next ones. About 12 bytes per reference.

    Attributes:
      shard: Digest of everything that determines the shard's bytes.
      refs: Digests of its references, 8 bytes each, in the order of the shard.
      order: Place of each of them in `PlannedShard.refs`, as 4 bytes, little-endian.
      candidates: Number of references to images that can still be written.
      has_known_states: Whether the states of their sources are known.
    """

    shard: str
    refs: bytes
    order: bytes
    candidates: int
    has_known_states: bool


class PlannedShard(NamedTuple):
    """A shard to write: its split, its number from 0, the split's number of shards, and its references.

    An earlier step may have computed its digests.
    """

    split: str
    shard: int
    num_shards: int
    refs: Iterable[EncodedRefs]
    digests: ShardDigests | None = None
