"""Rows that meet by name: the bucket that each row goes to, and how rows are packed on the way."""

from __future__ import annotations

import pickle
import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

#: Number of records whose rows meet in a bucket on average. With the values of their images, they take 40 MB.
RECORDS_PER_BUCKET = 10_000
#: Number of records that a shard of unknown size counts as. It may be a single file with all records.
UNKNOWN_RECORDS = 16 * RECORDS_PER_BUCKET
_MAX_BUCKETS = 4096
_CRC_BITS = 32
#: Number of rows, in any buckets, that are packed together.
_WAITING = 50_000
#: Packs with fewer bytes are not compressed: setting up the compressor takes longer than anything else.
_SMALL_PACK = 4096
#: Level of zstd, which takes a quarter of the time of zlib; and the beginning of what it compressed.
_LEVEL, _COMPRESSED = 1, b"\x28\xb5\x2f\xfd"

K = TypeVar("K", bound=Hashable)


def bucket_count(records: int) -> int:
    """Returns the number of buckets for the rows of all records of a dataset.

    Each shard packs its rows for each bucket, so many buckets cost small datasets more than the comparison.
    """
    return min(max(-(-records // RECORDS_PER_BUCKET), 1), _MAX_BUCKETS)


def bucket_of(name: str | bytes, buckets: int) -> int:
    """Returns the bucket for a name; rows with equal names meet in one bucket."""
    data = name if isinstance(name, bytes) else name.encode("utf-8", "surrogatepass")
    return zlib.crc32(data) * buckets >> _CRC_BITS


def pack_rows(rows: Sequence[Sequence[Any]]) -> bytes:
    """Packs rows by column, which puts similar values side by side and compresses well.

    Beam would encode each row separately, with its types.
    """
    data = pickle.dumps(list(zip(*rows)), pickle.HIGHEST_PROTOCOL)
    if len(data) < _SMALL_PACK:
        return data
    import zstandard  # small datasets do not need it

    return bytes(zstandard.compress(data, _LEVEL))


def unpack_rows(packs: Iterable[bytes]) -> Iterator[tuple[Any, ...]]:
    """Yields the rows that `pack_rows` packed."""
    for pack in packs:
        if pack.startswith(_COMPRESSED):
            import zstandard

            pack = zstandard.decompress(pack)
        yield from zip(*pickle.loads(pack))


def packed_by(rows: Iterable[tuple[K, Sequence[Any]]], most: int = _WAITING) -> Iterator[tuple[K, bytes]]:
    """Yields rows packed by bucket.

    Args:
      rows: Buckets and rows.
      most: Number of rows that are packed together.
    """
    rows = iter(rows)
    while together := list(islice(rows, most)):
        by_bucket: defaultdict[K, list[Sequence[Any]]] = defaultdict(list)
        for bucket, row in together:
            by_bucket[bucket].append(row)
        yield from ((bucket, pack_rows(some)) for bucket, some in by_bucket.items())
