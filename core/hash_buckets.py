"""Rows that meet by name: the bucket that each row goes to, and how rows are packed on the way."""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

_MIN_BUCKETS = 16
MAX_BUCKETS = 4096
_CRC_BITS = 32
#: Packs with fewer bytes are not compressed: setting up the compressor takes longer than anything else.
_SMALL_PACK = 4096
#: Level of zstd, which takes a quarter of the time of zlib.
_LEVEL = 1
#: Number of bytes of a pack's JSON, which comes before its hex digits.
_JSON_BYTES = struct.Struct("<I")
#: Types of arrays for integers, the smallest first: those of 1, 2, 4 and 8 bytes.
_INTEGERS = [(kind, 1 << 8 * array(kind).itemsize) for kind in "BHIQ"]


def bucket_count(parts: int) -> int:
    """Returns the number of buckets for rows that fill `parts` buckets, within fixed limits."""
    return min(max(_MIN_BUCKETS, parts), MAX_BUCKETS)


def bucket_of(name: str, buckets: int) -> int:
    """Returns the bucket for a name; rows with equal names meet in one bucket."""
    return zlib.crc32(name.encode()) * buckets >> _CRC_BITS


def pack_rows(rows: Sequence[Sequence[Any]]) -> bytes:
    """Packs rows of JSON values by column, which puts similar values side by side and compresses well.

    A column of equal texts, or of None, is stored once. Hex digits and integers are stored as bytes, which do
    not compress.
    """
    columns = list(zip(*rows))
    stored: list[Any] = [len(rows)]
    digits = list[bytes]()
    for column in columns:
        if _is_constant(column):
            stored.append(column[:1])
        elif data := _bytes_of_hex(column):
            stored.append(len(data) // len(column))
            digits.append(data)
        elif (numbers := _array_of(column)) is not None:
            stored.append({"kind": numbers.typecode})
            digits.append(numbers.tobytes())
        else:
            stored.append(_joined(column) or column)
    text = json.dumps(stored).encode()
    if len(text) >= _SMALL_PACK:
        text = _compressed(text)
    return b"".join((_JSON_BYTES.pack(len(text)), text, *digits))


def _compressed(text: bytes) -> bytes:
    import zstandard  # small datasets do not need it

    return bytes(zstandard.ZstdCompressor(_LEVEL).compress(text))


def _decompressed(data: bytes) -> bytes:
    import zstandard

    return bytes(zstandard.ZstdDecompressor().decompress(data))


def _is_constant(column: Sequence[Any]) -> bool:
    # Numbers are not compared, because 1 equals True.
    return (column[0] is None or isinstance(column[0], str)) and column.count(column[0]) == len(column)


def _joined(column: Sequence[Any]) -> str:
    """Returns texts as lines, which take less time to write as JSON; empty if they are not lines."""
    try:
        text = "\n".join(column)
    except TypeError:
        return ""
    return text if text.count("\n") == len(column) - 1 else ""


def _bytes_of_hex(column: Sequence[Any]) -> bytes:
    """Returns the bytes of texts of lowercase hex digits that are equally long; empty for other values."""
    try:
        text = "".join(column)
        data = bytes.fromhex(text)
    except (TypeError, ValueError):
        return b""
    size = len(column[0])
    equal = size % 2 == 0 and all(len(value) == size for value in column)
    return data if equal and data.hex() == text else b""


def _array_of(column: Sequence[Any]) -> array[int] | None:
    """Returns integers from 0 on as an array, with the byte order of all machines; None for other values."""
    if set(map(type, column)) != {int} or min(column) < 0:
        return None
    largest = max(column)
    for kind, limit in _INTEGERS:
        if largest < limit:
            return _little_endian(array(kind, column))
    return None


def _little_endian(numbers: array[int]) -> array[int]:
    """Converts an array to or from the byte order of packs, in place, and returns it."""
    if sys.byteorder != "little":
        numbers.byteswap()
    return numbers


def unpack_rows(pack: bytes) -> Iterator[tuple[Any, ...]]:
    """Yields the rows that `pack_rows` packed."""
    begin = _JSON_BYTES.size
    end = begin + _JSON_BYTES.unpack_from(pack)[0]
    text = pack[begin:end]
    columns: list[Any]
    count, *columns = json.loads(text if text.startswith(b"[") else _decompressed(text))
    for place, column in enumerate(columns):
        if isinstance(column, int):
            begin, end = end, end + column * count
            digits, width = pack[begin:end].hex(), 2 * column
            columns[place] = [digits[at : at + width] for at in range(0, len(digits), width)]
        elif isinstance(column, dict):
            numbers = array(column["kind"])
            begin, end = end, end + numbers.itemsize * count
            numbers.frombytes(pack[begin:end])
            columns[place] = _little_endian(numbers).tolist()
        elif isinstance(column, str):
            columns[place] = column.split("\n")
        elif len(column) != count:
            columns[place] = column * count
    return zip(*columns)
