"""Rows that meet by name: the bucket that each row goes to, and how rows are packed on the way."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

_MIN_BUCKETS = 16
_MAX_BUCKETS = 4096
_CRC_BITS = 32
#: Packs with fewer bytes are not compressed: setting up the compressor takes longer than anything else.
_SMALL_PACK = 4096


def bucket_count(parts: int) -> int:
    """Returns the number of buckets for rows that fill `parts` buckets, within fixed limits."""
    return min(max(_MIN_BUCKETS, parts), _MAX_BUCKETS)


def bucket_of(name: str, buckets: int) -> int:
    """Returns the bucket for a name; rows with equal names meet in one bucket."""
    return zlib.crc32(name.encode()) * buckets >> _CRC_BITS


def pack_rows(rows: Sequence[Sequence[Any]]) -> bytes:
    """Packs rows of JSON values."""
    return pack_columns(list(zip(*rows)))


def pack_columns(columns: Sequence[Sequence[Any]]) -> bytes:
    """Packs rows of JSON values by column, which puts similar values side by side and compresses well.

    Args:
      columns: One column for each place of a row. A column of equal texts, or of None, is stored once.
    """
    count = len(columns[0]) if columns else 0
    text = json.dumps(
        [count, *(column[:1] if _is_constant(column) else column for column in columns)]
    ).encode()
    return text if len(text) < _SMALL_PACK else zlib.compress(text, 1)


def _is_constant(column: Sequence[Any]) -> bool:
    # Numbers are not compared, because 1 equals True.
    return (column[0] is None or isinstance(column[0], str)) and column.count(column[0]) == len(column)


def unpack_rows(pack: bytes) -> Iterator[tuple[Any, ...]]:
    """Yields the rows that `pack_rows` or `pack_columns` packed."""
    count, *columns = json.loads(pack if pack.startswith(b"[") else zlib.decompress(pack))
    return zip(*(column if len(column) == count else column * count for column in columns))
