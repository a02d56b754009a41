"""Rows on their way to where equals meet: which bucket they go to, and how they are packed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from shardwright.transforms.plan.assign import hash64, shard_of

_MIN_BUCKETS = 16
_MAX_BUCKETS = 4096


def bucket_count(parts: int) -> int:
    """Returns the number of buckets for rows that fill `parts` of them: neither few nor very many."""
    return min(max(_MIN_BUCKETS, parts), _MAX_BUCKETS)


def bucket_of(name: str, buckets: int) -> int:
    """Returns the bucket in which all that is called alike meets."""
    return shard_of(hash64(0, "bucket", name), buckets)


def pack_rows(rows: Sequence[Sequence[Any]]) -> bytes:
    """Packs rows of what JSON can hold column by column, for equals are next to each other then."""
    return zlib.compress(json.dumps(list(zip(*rows))).encode(), 1)


def unpack_rows(pack: bytes) -> Iterator[tuple[Any, ...]]:
    """Yields the rows that `pack_rows` packed."""
    return zip(*json.loads(zlib.decompress(pack)))
