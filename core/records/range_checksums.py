"""Computes the CRC-32C of any range of a file, at a cost that does not depend on its length."""

from __future__ import annotations

import os
from array import array
from typing import IO

import google_crc32c

from shardwright.core.concurrency.underway import UNDERWAY

#: Fewest bytes between two stored checksums.
STRIDE = 1024
_READ_BYTES = 1 << 20
_BITS = 32
_BYTES = 4


def _zero_byte_columns() -> list[int]:
    """Returns, for each bit of a CRC, its contribution to the CRC after one more zero byte.

    A CRC is affine in its input. Removing the CRC of the zeros alone leaves the linear part.
    """
    alone = google_crc32c.value(b"\0")
    return [google_crc32c.extend(1 << bit, b"\0") ^ alone for bit in range(_BITS)]


def _tables(columns: list[int]) -> list[list[int]]:
    """Returns a linear map of 32 bits as four tables, one for each byte."""
    tables = []
    for byte in range(_BYTES):
        table = [0]
        for column in columns[8 * byte : 8 * byte + 8]:
            table += [value ^ column for value in table]
        tables.append(table)
    return tables


def _apply(tables: list[list[int]], crc: int) -> int:
    a, b, c, d = tables
    return a[crc & 255] ^ b[crc >> 8 & 255] ^ c[crc >> 16 & 255] ^ d[crc >> 24]


class RangeChecksums:
    """Reads a file once, then computes the CRC-32C of any range from two short reads.

    The CRC of a range is the CRC of all bytes before its end, without the CRC of all bytes before its
    beginning, shifted by the length. It is the reverse of zlib's `crc32_combine`.

    Args:
      file: A real file, opened for reading in binary mode.
      most: Largest number of checksums to store, which take 4 bytes of memory each.
    """

    def __init__(self, file: IO[bytes], most: int = 1 << 22) -> None:
        self._file = file
        self._shifts: list[list[list[int]]] = []
        self._sums = array("I")
        self._stride = max(STRIDE, -(-os.fstat(file.fileno()).st_size // most))
        crc = 0
        file.seek(0)
        while chunk := file.read(self._stride * max(1, _READ_BYTES // self._stride)):
            UNDERWAY.progress()
            for begin in range(0, len(chunk), self._stride):
                self._sums.append(crc)
                crc = google_crc32c.extend(crc, chunk[begin : begin + self._stride])
        self._sums.append(crc)

    def value(self, begin: int, end: int) -> int:
        """Returns the CRC-32C of the bytes from `begin` up to, but excluding, `end`."""
        return self._until(end) ^ self._moved(self._until(begin), end - begin)

    def _until(self, position: int) -> int:
        number, rest = divmod(position, self._stride)
        if not rest:
            return self._sums[number]
        self._file.seek(position - rest)
        crc: int = google_crc32c.extend(self._sums[number], self._file.read(rest))
        return crc

    def _moved(self, crc: int, count: int) -> int:
        """Returns the contribution of a CRC to the CRC after `count` more zero bytes."""
        power = 0
        while count:
            if power == len(self._shifts):
                self._shifts.append(self._next_shift())
            if count & 1:
                crc = _apply(self._shifts[power], crc)
            count >>= 1
            power += 1
        return crc

    def _next_shift(self) -> list[list[int]]:
        if not self._shifts:
            return _tables(_zero_byte_columns())
        last = self._shifts[-1]
        return _tables([_apply(last, _apply(last, 1 << bit)) for bit in range(_BITS)])
