"""The frames of TFRecord files; `recovery.read_records` reads whole files.

A record is framed as `uint64 length`, `uint32 masked crc32c(length)`, `data`,
`uint32 masked crc32c(data)`, little endian (tensorflow/core/lib/io/record_writer.h).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import google_crc32c

from shardwright.schemas.codes import FindingCode

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
_MASK_DELTA = 0xA282EAD8
#: Bytes of a length, before its checksum.
_LENGTH_BYTES = 8
_HEADER = struct.Struct("<QI")
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
    if len(head) < HEADER_BYTES:
        return False
    length = head[:_LENGTH_BYTES]
    return masked_crc32c(length) == int.from_bytes(head[_LENGTH_BYTES:HEADER_BYTES], "little")


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
    length, crc = _HEADER.unpack(header)
    if verify and masked_crc32c(header[:_LENGTH_BYTES]) != crc:
        raise FrameDamage(FindingCode.LENGTH_CRC, "the checksum of the record's length is wrong")
    return int(length)


def check_data(data: bytes, footer: bytes) -> None:
    """Compares the data of a record with the checksum after it.

    Raises:
      FrameDamage: If they differ.
    """
    if masked_crc32c(data) != int.from_bytes(footer, "little"):
        raise FrameDamage(FindingCode.DATA_CRC, f"the checksum of the record's {len(data)} bytes is wrong")


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
        check_data(data, frame[-FOOTER_BYTES:])
    return data
