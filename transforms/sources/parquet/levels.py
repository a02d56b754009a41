"""Decodes Parquet's hybrid of run lengths and packed bits: definition levels and dictionary indices."""

from __future__ import annotations

import numpy as np

#: Widest number in bits.
_WIDEST = 32


def hybrid_numbers(data: bytes, width: int, count: int) -> np.ndarray:
    """Returns the numbers in encoded data.

    Args:
      data: Encoded numbers; bytes after them are ignored.
      width: Number of bits of each number.
      count: How many numbers there are.

    Raises:
      ValueError: If the data is damaged or ends early.
    """
    if not 0 <= width <= _WIDEST:
        raise ValueError(f"its numbers have {width} bits")
    found = np.zeros(count, np.int64)
    if not width:
        return found
    size = (width + 7) // 8
    weights = 1 << np.arange(width, dtype=np.int64)
    position = done = 0
    while done < count:
        head, position = _varint(data, position)
        if head & 1:
            groups = head >> 1
            wanted = min(groups * 8, count - done)
            length = min(groups * width, len(data) - position)
            bits = np.unpackbits(np.frombuffer(data, np.uint8, length, position), bitorder="little")
            if not wanted or len(bits) < wanted * width:
                raise ValueError("its packed numbers end early")
            found[done : done + wanted] = bits[: wanted * width].reshape(wanted, width) @ weights
            position += groups * width
        else:
            wanted = min(head >> 1, count - done)
            if not wanted or position + size > len(data):
                raise ValueError("its run lengths end early")
            found[done : done + wanted] = int.from_bytes(data[position : position + size], "little")
            position += size
        done += wanted
    return found


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns a number and the position after it."""
    value = shift = 0
    while shift < _WIDEST + 4:
        if position >= len(data):
            raise ValueError("its levels end early")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("its levels have a number that is too long")
