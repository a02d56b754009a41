"""Reads IDX files, the format of MNIST: `train-images-idx3-ubyte.gz`, `train-labels-idx1-ubyte.gz`."""

from __future__ import annotations

import re
from functools import partial

from shardwright.transforms.sources.arrays.rows import (
    HEADER_BYTES,
    ArrayHeader,
    Rows,
    head_of,
    open_gzip,
    read_first,
    rows_of,
    slice_of,
    unpack,
)
from shardwright.transforms.sources.source import Context

#: The third byte of an IDX file -> type of its values, most significant byte first.
_TYPES = {0x08: "|u1", 0x09: "|i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP = b"\x1f\x8b"
_GZIP_BITS = 31
_NAME = re.compile(r"idx\d|ubyte\Z", re.IGNORECASE)


def is_idx_name(name: str) -> bool:
    """Returns whether a file is named like those of MNIST."""
    return bool(_NAME.search(name.removesuffix(".gz")))


def parse_idx_header(head: bytes) -> ArrayHeader:
    """Reads the header of an IDX file.

    Raises:
      ValueError: if the file is not an IDX file.
    """
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES or not head[3]:
        raise ValueError("it is not an IDX file")
    begin = 4 + 4 * head[3]
    if len(head) < begin:
        raise ValueError("its header is incomplete")
    shape = tuple(int.from_bytes(head[i : i + 4], "big") for i in range(4, begin, 4))
    return ArrayHeader(_TYPES[head[2]], shape, begin)


def idx_header(path: str) -> ArrayHeader:
    """Reads the header of an IDX file, compressed or not.

    Raises:
      ValueError: if the file is not an IDX file.
    """
    file_slice = slice_of(path)
    head = file_slice.read(0, HEADER_BYTES)
    return parse_idx_header(head_of(head, _GZIP_BITS) if head.startswith(_GZIP) else head)


def idx_rows(path: str, context: Context) -> Rows:
    """Returns the rows of an IDX file; a compressed file is unpacked into the spool.

    Raises:
      ValueError: if the file is not an IDX file.
    """
    file_slice = slice_of(path)
    head = file_slice.read(0, HEADER_BYTES)
    if not head.startswith(_GZIP):
        return rows_of(file_slice, parse_idx_header(head), context)
    header = parse_idx_header(head_of(head, _GZIP_BITS))
    unpacked, damage = unpack(file_slice, "", partial(open_gzip, file_slice), header.end, context)
    return rows_of(unpacked, header, context, damage)


def first_idx_values(path: str, begin: int, length: int) -> bytes:
    """Returns the first bytes of an IDX file's values, which begin at `begin`."""
    file_slice = slice_of(path)
    if file_slice.read(0, 2) != _GZIP:
        return file_slice.read(begin, length)
    return read_first(partial(open_gzip, file_slice), begin + length)[begin:]
