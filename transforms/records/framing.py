"""Reads TFRecord files record by record, sound or damaged, and says what is wrong where.

A record is framed as `uint64 length`, `uint32 masked crc32c(length)`, `data`,
`uint32 masked crc32c(data)`, little endian (tensorflow/core/lib/io/record_writer.h).
"""

from __future__ import annotations

import os
import struct
import tempfile
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

import google_crc32c
import numpy as np

from shardwright.schemas.codes import FindingCode

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_READ_BYTES = 1 << 20
_MASK_DELTA = 0xA282EAD8


def masked_crc32c(data: bytes) -> int:
    """Returns the masked CRC-32C that frames store."""
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


class Record(NamedTuple):
    """A sound record: its number among all records seen, frame offset and data."""

    number: int
    offset: int
    data: bytes


class Damage(NamedTuple):
    """A stretch of a shard that holds no sound record.

    Attributes:
      number: the number the damaged record would have.
      offset: where it begins.
      end: where reading goes on.
      code: SHARD_TRUNCATED, LENGTH_CRC or DATA_CRC.
      message: one sentence.
    """

    number: int
    offset: int
    end: int
    code: FindingCode
    message: str


class _Window:
    """Random access to a file through one buffer, so that memory stays flat."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size
        self._start = 0
        self._buffer = b""

    def read(self, offset: int, size: int) -> bytes:
        """Returns `size` bytes at `offset`; fewer at the end of the file."""
        begin = offset - self._start
        if begin < 0 or begin + size > len(self._buffer):
            self._file.seek(offset)
            self._buffer = self._file.read(max(size, _READ_BYTES))
            self._start, begin = offset, 0
        return self._buffer[begin : begin + size]


def _crc_tables() -> list[np.ndarray]:
    """Returns for each of 8 byte positions the CRC-32C contribution of every byte value.

    A CRC is affine in its input bits, so the CRC of 8 bytes is the XOR of one table entry for each
    and the CRC of 8 zero bytes.
    """
    zero = google_crc32c.value(bytes(8))
    tables = []
    for position in range(8):
        values = [
            google_crc32c.value(bytes(position) + bytes((byte,)) + bytes(7 - position)) ^ zero
            for byte in range(256)
        ]
        tables.append(np.array(values, np.uint32))
    tables[0] ^= np.uint32(zero)
    return tables


_TABLES: list[np.ndarray] = []


def _header_candidates(chunk: bytes, limit: int) -> list[int]:
    """Returns the positions in a chunk at which a header with a matching CRC stands.

    Args:
      chunk: bytes to search.
      limit: largest length that a record could have.
    """
    count = len(chunk) - HEADER_BYTES + 1
    if count <= 0:
        return []
    if not _TABLES:
        _TABLES.extend(_crc_tables())
    data = np.frombuffer(chunk, np.uint8)
    # Most positions are ruled out by the top bytes of the length alone.
    high_bytes = max(1, 8 - (limit.bit_length() + 7) // 8)
    places = np.flatnonzero(data[7 : 7 + count] == 0)
    for back in range(1, high_bytes):
        places = places[data[places + 7 - back] == 0]
    crc = np.zeros(len(places), np.uint32)
    for position in range(8):
        crc ^= _TABLES[position][data[places + position]]
    masked = ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(_MASK_DELTA)
    stored = np.zeros(len(places), np.uint32)
    for position in range(4):
        stored |= data[places + 8 + position].astype(np.uint32) << np.uint32(8 * position)
    return [int(place) for place in places[masked == stored]]


def _data_at(window: _Window, offset: int) -> bytes | None:
    """Returns the data of the sound record at an offset, or None if there is none."""
    header = window.read(offset, HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return None
    length, crc = _HEADER.unpack(header)
    if length > window.size - offset - FRAME_BYTES or masked_crc32c(header[:8]) != crc:
        return None
    body = window.read(offset + HEADER_BYTES, length + FOOTER_BYTES)
    data = body[:length]
    return data if masked_crc32c(data) == _FOOTER.unpack_from(body, length)[0] else None


def _next_sound(window: _Window, start: int) -> int:
    """Returns the offset of the next sound record at or after `start`, or the file's size."""
    position = start
    while position < window.size:
        chunk = window.read(position, _READ_BYTES + HEADER_BYTES - 1)
        for place in _header_candidates(chunk, window.size):
            if _data_at(window, position + place) is not None:
                return position + place
        position += _READ_BYTES
    return window.size


def read_records(file: IO[bytes]) -> Iterator[Record | Damage]:
    """Yields every sound record of an uncompressed TFRecord file, and each damage between them.

    After damage it goes on at the next offset where length, checksums and data agree, looking
    from the damaged record's own first byte on, so that no sound record is missed when bytes were
    inserted or removed.

    Args:
      file: a real file, opened for reading in binary mode.
    """
    window = _Window(file)
    offset = number = 0
    while offset < window.size:
        header = window.read(offset, HEADER_BYTES)
        damage: tuple[FindingCode, str] | None = None
        length = 0
        if len(header) < HEADER_BYTES:
            damage = FindingCode.SHARD_TRUNCATED, "the file ends inside a record's header"
        else:
            length, crc = _HEADER.unpack(header)
            if masked_crc32c(header[:8]) != crc:
                damage = FindingCode.LENGTH_CRC, "the checksum of the record's length is wrong"
            elif length > window.size - offset - FRAME_BYTES:
                damage = (
                    FindingCode.SHARD_TRUNCATED,
                    f"the file ends inside a record of {length} bytes",
                )
        if damage is None:
            body = window.read(offset + HEADER_BYTES, length + FOOTER_BYTES)
            data = body[:length]
            if masked_crc32c(data) == _FOOTER.unpack_from(body, length)[0]:
                yield Record(number, offset, data)
                offset += length + FRAME_BYTES
                number += 1
                continue
            damage = FindingCode.DATA_CRC, f"the checksum of the record's {length} bytes is wrong"
            follower = offset + length + FRAME_BYTES
            if follower == window.size or _data_at(window, follower) is not None:
                yield Damage(number, offset, follower, *damage)
                offset = follower
                number += 1
                continue
        end = _next_sound(window, offset + 1)
        yield Damage(number, offset, end, *damage)
        offset = end
        number += 1


#: Window bits of zlib per compression.
_WBITS = {"gzip": 31, "zlib": 15}


def decompress(source: IO[bytes], compression: str) -> tuple[IO[bytes], str | None]:
    """Unpacks a compressed shard into a temporary file.

    Returns:
      The file, as far as the data could be unpacked, and what went wrong (None if nothing did).
    """
    target = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    try:
        error = decompress_into(target, source, compression)
    except BaseException:
        target.close()
        raise
    target.flush()
    target.seek(0)
    return target, error


def decompress_into(target: IO[bytes], source: IO[bytes], compression: str) -> str | None:
    """Unpacks a compressed shard into a file, as far as it can be; returns what went wrong, if so."""
    error: str | None = None
    decompressor = zlib.decompressobj(_WBITS[compression])
    read = 0
    try:
        while chunk := source.read(_READ_BYTES):
            read += len(chunk)
            while chunk:
                before = decompressor.copy()
                try:
                    target.write(decompressor.decompress(chunk, 8 * _READ_BYTES))
                except zlib.error:
                    for byte in chunk:  # all that comes before the damage, raises at it
                        target.write(before.decompress(bytes((byte,))))
                chunk = decompressor.unconsumed_tail
                if decompressor.eof:
                    chunk = decompressor.unused_data
                    decompressor = zlib.decompressobj(_WBITS[compression])  # a further member
                    fresh = True
                    continue
                fresh = False
        if read and not fresh:
            target.write(decompressor.flush())
            error = f"the compressed stream ends early, after {read} bytes"
    except zlib.error as problem:
        error = f"the compressed stream is damaged near byte {read}: {problem}"
    return error


def compression_of(path: str, head: bytes) -> str:
    """Tells a shard's compression from its name, or from its first bytes for foreign names."""
    if path.endswith(".gz"):
        return "gzip"
    if path.endswith(".zlib"):
        return "zlib"
    return "gzip" if head[:2] == b"\x1f\x8b" else "none"
