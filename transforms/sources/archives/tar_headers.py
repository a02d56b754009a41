"""Reads the headers of tar files, and finds the next valid header after damage.

The layouts are those of POSIX.1-2017 (pax, "ustar Interchange Format") and of GNU tar's manual,
"Basic Tar Format".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shardwright.transforms.sources.archives.members import decode_name
from shardwright.transforms.storage.ranges import RangeReader

BLOCK = 512
#: Bytes that are searched at once for the next valid header.
SEARCH_STEP = 1 << 20


class TarHeader(NamedTuple):
    """Fields of the header before a member; `type` is the byte of its type flag."""

    name: str
    size: int
    mtime: int
    type: int


def parse_header(block: bytes) -> TarHeader | None:
    """Returns the fields of a header, or None if its checksum or a number in it is wrong."""
    checksum = _number(block[148:156])
    found = sum(block) - sum(block[148:156]) + 8 * 0x20
    if checksum != found and checksum != _signed_sum(block):
        return None
    size, mtime = _number(block[124:136]), _number(block[136:148])
    if size is None or size < 0:
        return None
    name = block[:100].split(b"\0", 1)[0]
    if block[257:263] == b"ustar\0" and block[345]:
        name = block[345:500].split(b"\0", 1)[0] + b"/" + name
    return TarHeader(decode_name(name), size, mtime or 0, block[156])


def _signed_sum(block: bytes) -> int:
    """Returns the checksum of signed bytes, which some old programs write."""
    values = np.frombuffer(block, np.int8).astype(np.int64)
    return int(values.sum() - values[148:156].sum()) + 8 * 0x20


def _number(field: bytes) -> int | None:
    """Reads a number: octal digits, or base 256 if the first bit is set."""
    if field[0] & 0x80:
        value = int.from_bytes(field, "big") & ~(0x80 << 8 * (len(field) - 1))
        return value if field[0] == 0x80 else value - (1 << 8 * len(field) - 1) if field[0] == 0xFF else None
    text = field.split(b"\0", 1)[0].strip()
    if not text:
        return 0
    return int(text, 8) if text.isdigit() and not text.strip(b"01234567") else None


def find_header(reader: RangeReader, position: int, end: int) -> int:
    """Returns the position of the next valid header; -1 if there is none.

    After lost or added bytes, a header can be at any position; its magic identifies it. Headers of
    old tars have no magic. They are searched only in steps of a block.
    """
    begin = position
    while position + BLOCK <= end:
        length = min(SEARCH_STEP, end - position)
        data = reader.read_at(position, length)
        found = min(
            (place for place in (_by_magic(data), _by_checksum(data, begin - position)) if place >= 0),
            default=-1,
        )
        if found >= 0:
            return position + found
        position += max(length - BLOCK + 1, 1)
    return -1


def _by_magic(data: bytes) -> int:
    place = data.find(b"ustar", 257)
    while place >= 0:
        if parse_header(data[place - 257 : place - 257 + BLOCK].ljust(BLOCK, b"\xff")):
            return place - 257
        place = data.find(b"ustar", place + 1)
    return -1


def _by_checksum(data: bytes, shift: int) -> int:
    """Returns the first position with a valid header, in steps of a block that begin at `shift`."""
    first = shift % BLOCK
    blocks = np.frombuffer(data, np.uint8)[first : first + (len(data) - first) // BLOCK * BLOCK].reshape(
        -1, BLOCK
    )
    fields = blocks[:, 148:156]
    octal = ((fields >= ord("0")) & (fields <= ord("7"))) | (fields == 0) | (fields == ord(" "))
    for number in np.flatnonzero(octal.all(axis=1) & (fields != 0).any(axis=1)).tolist():
        if parse_header(blocks[number].tobytes()):
            return first + int(number) * BLOCK
    return -1
