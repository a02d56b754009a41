"""Rows that meet by name: the bucket that each row goes to, and how rows are packed on the way."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

_MIN_BUCKETS = 16
MAX_BUCKETS = 4096
_CRC_BITS = 32
#: Packs with fewer bytes are not compressed: setting up the compressor takes longer than anything else.
_SMALL_PACK = 4096
#: Level of zstd, which takes a quarter of the time of zlib.
_LEVEL = 1


def bucket_count(parts: int) -> int:
    """Returns the number of buckets for rows that fill `parts` buckets, within fixed limits."""
    return min(max(_MIN_BUCKETS, parts), MAX_BUCKETS)


def bucket_of(name: str, buckets: int) -> int:
    """Returns the bucket for a name; rows with equal names meet in one bucket."""
    return zlib.crc32(name.encode()) * buckets >> _CRC_BITS


def pack_rows(rows: Sequence[Sequence[Any]]) -> bytes:
    """Packs rows of JSON values by column, which puts similar values side by side and compresses well."""
    text = json.dumps(list(zip(*rows))).encode()
    if len(text) < _SMALL_PACK:
        return text
    import zstandard  # small datasets do not need it

    return bytes(zstandard.compress(text, _LEVEL))


def unpack_rows(pack: bytes) -> Iterator[tuple[Any, ...]]:
    """Yields the rows that `pack_rows` packed."""
    text = pack
    if not text.startswith(b"["):
        import zstandard

        text = zstandard.decompress(pack)
    return zip(*json.loads(text))
