"""TFRecord files: their frames, every sound record also of damaged ones, and the kind of any damage.

A record is framed as `uint64 length`, `uint32 masked crc32c(length)`, `data`,
`uint32 masked crc32c(data)`, little endian (tensorflow/core/lib/io/record_writer.h).
"""

from __future__ import annotations

import contextlib
import os
from array import array
from collections.abc import Iterator
from functools import cached_property
from typing import IO, NamedTuple

import google_crc32c
import numpy as np

from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.schemas.codes import FindingCode

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
_MASK_DELTA = 0xA282EAD8
#: Bytes of a length, before its checksum.
_LENGTH_BYTES = 8
_ALL_BITS = 0xFFFFFFFF


class FrameDamage(Exception):
    """A frame is damaged.

    Attributes:
      code: SHARD_TRUNCATED, LENGTH_CRC or DATA_CRC.
      message: Description of the damage.
    """

    def __init__(self, code: FindingCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Record(NamedTuple):
    """A sound record.

    Attributes:
      number: Number of the record, from 0; every earlier record and damaged range counts as one.
      offset: Offset of its frame.
      data: Its data, without the frame.
    """

    number: int
    offset: int
    data: bytes


def masked_crc32c(data: bytes) -> int:
    """Returns the masked CRC-32C, as frames store it."""
    return masked(google_crc32c.value(data))


def masked(crc: int) -> int:
    """Masks a CRC-32C."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _ALL_BITS


def is_header(head: bytes) -> bool:
    """Returns whether bytes begin with the header of a frame whose checksum matches."""
    length, crc = head[:_LENGTH_BYTES], head[_LENGTH_BYTES:HEADER_BYTES]
    return len(head) >= HEADER_BYTES and masked_crc32c(length) == int.from_bytes(crc, "little")


def data_length(header: bytes, room: int) -> int:
    """Returns the number of bytes of a record's data, from the header of its frame.

    Args:
      header: First `HEADER_BYTES` of the frame; fewer if the file ends inside them.
      room: Number of bytes from the beginning of the frame to the end of the file.

    Raises:
      FrameDamage: If the header is incomplete or damaged, or the file ends inside the frame.
    """
    if len(header) < HEADER_BYTES:
        raise FrameDamage(FindingCode.SHARD_TRUNCATED, "the file ends inside a record's header")
    length = _stated_length(header, verify=True)
    if length > room - FRAME_BYTES:
        raise FrameDamage(FindingCode.SHARD_TRUNCATED, f"the file ends inside a record of {length} bytes")
    return length


def _stated_length(header: bytes, verify: bool) -> int:
    if verify and not is_header(header):
        raise FrameDamage(FindingCode.LENGTH_CRC, "the checksum of the record's length is wrong")
    return int.from_bytes(header[:_LENGTH_BYTES], "little")


def check_crc(crc: int, length: int, footer: bytes) -> None:
    """Compares the CRC-32C of a record's data with the checksum after it.

    Raises:
      FrameDamage: If they differ.
    """
    if masked(crc) != int.from_bytes(footer, "little"):
        raise FrameDamage(FindingCode.DATA_CRC, f"the checksum of the record's {length} bytes is wrong")


def data_of(frame: bytes, verify: bool = True) -> bytes:
    """Returns the data of a frame.

    Args:
      frame: Bytes that should be one frame, at least `FRAME_BYTES`.
      verify: Whether to compare the checksums.

    Raises:
      FrameDamage: If the bytes are not exactly one sound frame.
    """
    length, data = _stated_length(frame[:HEADER_BYTES], verify), frame[HEADER_BYTES:-FOOTER_BYTES]
    if length != len(data):
        raise FrameDamage(FindingCode.LENGTH_CRC, f"it has {length} bytes instead of {len(data)}")
    if verify:
        check_crc(google_crc32c.value(data), length, frame[-FOOTER_BYTES:])
    return data


#: Number of bytes that are searched first for a sound record; doubled each time up to the second number.
_FIRST_STEP, LAST_STEP = 1 << 10, 1 << 20
#: Fewest bytes between two stored checksums, and the largest number of them, which take 4 bytes each.
STRIDE, _MOST_SUMS = 1024, 1 << 22
_READ_BYTES = 1 << 20
#: Polynomial of CRC-32C, in the order of bits in which a CRC is stored: the highest bit is the power 0 of x.
_POLYNOMIAL = 0x82F63B78
_BITS = 32
#: The power 8 of x, by which a zero byte multiplies a CRC.
_ZERO_BYTE = 1 << _BITS - 1 - 8


class DamagedRange(NamedTuple):
    """A range of a shard without a sound record.

    Attributes:
      number: Number that the damaged record would have.
      offset: Offset of the first byte.
      end: Offset at which reading continues: the next sound record, or the end of the file.
      code: SHARD_TRUNCATED, LENGTH_CRC or DATA_CRC, for the frame at `offset`.
      message: One sentence about the damage.
    """

    number: int
    offset: int
    end: int
    code: FindingCode
    message: str


def read_records(file: IO[bytes], fault: str | None = None) -> Iterator[Record | DamagedRange]:
    """Yields every sound record of an uncompressed TFRecord file, and every damaged range between them.

    Records and damaged ranges cover the file from the first byte to the last. After damage, reading continues
    at the next offset where length, checksums and data match. The search starts at the second byte of the
    damaged record, so it misses no sound record, even if records have moved.

    A damaged range counts as one record, because its bytes do not show how many it contained. Later numbers
    are correct if it was one, and later offsets are correct if no byte was inserted or removed. The shard's
    ledger or index tells more.

    Args:
      file: A real file, opened for reading in binary mode.
      fault: Why bytes are missing at its end, such as damage of a compressed stream. The damaged range at the
        end reports it; if the bytes end with a sound record, that range is empty.
    """
    frames = _Frames(file)
    number = offset = 0
    while offset < frames.size:
        try:
            data = frames.data_at(offset)
        except FrameDamage as damage:
            end = frames.next_sound(offset + 1)
            message = damage.message
            if fault and end == frames.size:
                message, fault = f"{message}: {fault}", None
            yield DamagedRange(number, offset, end, damage.code, message)
            offset = end
        else:
            yield Record(number, offset, data)
            offset += len(data) + FRAME_BYTES
        number += 1
    if fault:
        yield DamagedRange(number, offset, offset, FindingCode.SHARD_TRUNCATED, fault)


class _Frames:
    """The frames of a file.

    After damage, a frame may state any length, and many may overlap. So the data of a long one is then read
    only after its checksum was computed from those of the whole file, which costs the same for every length.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._is_damaged = False
        self.size = os.fstat(file.fileno()).st_size

    @cached_property
    def _checksums(self) -> RangeChecksums:
        return RangeChecksums(self._file)

    def data_at(self, offset: int) -> bytes:
        """Returns the data of the record whose frame begins at an offset.

        Raises:
          FrameDamage: If there is no sound frame.
        """
        length = data_length(self._read(offset, HEADER_BYTES), self.size - offset)
        begin = offset + HEADER_BYTES
        if self._is_damaged and length > 2 * STRIDE:
            crc = self._checksums.value(begin, begin + length)
            check_crc(crc, length, self._read(begin + length, FOOTER_BYTES))
        data = self._read(begin, length)
        check_crc(google_crc32c.value(data), length, self._read(begin + length, FOOTER_BYTES))
        return data

    def next_sound(self, start: int) -> int:
        """Returns the offset of the next sound record at or after `start`, or the size of the file."""
        self._is_damaged = True
        position, step = start, _FIRST_STEP
        while position < self.size:
            UNDERWAY.progress()
            chunk = self._read(position, step + HEADER_BYTES - 1)
            for place in _header_candidates(chunk, self.size):
                with contextlib.suppress(FrameDamage):
                    self.data_at(position + place)
                    return position + place
            position += step
            step = min(2 * step, LAST_STEP)
        return self.size

    def _read(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(size)


def _header_candidates(chunk: bytes, limit: int) -> Iterator[int]:
    """Yields the positions in a chunk of headers with a matching CRC.

    Args:
      chunk: Bytes to search.
      limit: Largest possible length of a record.
    """
    count = len(chunk) - HEADER_BYTES + 1
    if count <= 0:
        return
    data = np.frombuffer(chunk, np.uint8)
    # The high bytes of the length alone rule out most positions, and no header has only zeros.
    high_bytes = max(1, 8 - (limit.bit_length() + 7) // 8)
    places = np.flatnonzero(data[7 : 7 + count] == 0)
    for back in range(1, high_bytes):
        places = places[data[places + 7 - back] == 0]
    filled = np.cumsum(data != 0)
    places = places[(filled[places + HEADER_BYTES - 1] > filled[places]) | (data[places] != 0)]
    for place in map(int, places):
        if is_header(chunk[place : place + HEADER_BYTES]):
            yield place


def _times(a: int, b: int) -> int:
    """Multiplies two polynomials, and returns the remainder after division by CRC-32C's polynomial."""
    product = 0
    for bit in reversed(range(_BITS)):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


class RangeChecksums:
    """Reads a file once, then computes the CRC-32C of any range from two short reads.

    The CRC of a range is the CRC of all bytes before its end, without the CRC of all bytes before its
    beginning, shifted by the length. It is the reverse of zlib's `crc32_combine`.

    Args:
      file: A real file, opened for reading in binary mode.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._sums = array("I")
        self._stride = max(STRIDE, -(-os.fstat(file.fileno()).st_size // _MOST_SUMS))
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
        before, zeros, left = self._until(begin), _ZERO_BYTE, end - begin
        while left:
            if left & 1:
                before = _times(zeros, before)
            zeros, left = _times(zeros, zeros), left >> 1
        return self._until(end) ^ before

    def _until(self, position: int) -> int:
        index, rest = divmod(position, self._stride)
        if not rest:
            return self._sums[index]
        self._file.seek(position - rest)
        crc: int = google_crc32c.extend(self._sums[index], self._file.read(rest))
        return crc
