"""Unpacks a compressed tar into a spool file, up to a size limit."""

from __future__ import annotations

import bz2
import json
import lzma
import struct
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import IO, Any, NamedTuple

import zstandard

from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import words_of
from shardwright.schemas.units import format_size
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.sources.archives.kinds import (
    BZIP2,
    GZIP,
    MAX_DECODER_BYTES,
    MAX_WINDOW_BYTES,
    XZ,
    ZSTD,
)
from shardwright.transforms.sources.archives.members import (
    MAX_RATIO,
    MAX_UNPACKED_BYTES,
    SMALL_BYTES,
    ArchiveDamage,
)
from shardwright.transforms.storage.ranges import RangeReader

#: Compressed bytes that are unpacked at once. A decoder that meets damage gives nothing for its last
#: piece of input (zlib's state can be copied), and zstd can unpack to 32,768 times the input's size.
_BITES = {GZIP: 1 << 16, BZIP2: 1 << 12, XZ: 1 << 12, ZSTD: 1 << 10}
#: Most unpacked bytes at once, for decoders that accept a limit.
_PIECE = 1 << 20
#: At the end of a spool file: the length of the JSON before it, and a signature.
_FOOTER = struct.Struct("<Q8s")
_SIGN = b"SWspool1"


class Unpacked(NamedTuple):
    """Content of a spool file.

    Attributes:
      length: Number of bytes of the tar, which is at the beginning of the file.
      damage: Why a part of the archive is missing; None if it is complete.
    """

    length: int
    damage: ArchiveDamage | None


class _Stop(Exception):
    """Ends unpacking."""

    def __init__(self, reason: QuarantineReason, message: str) -> None:
        super().__init__(message)
        self.damage = ArchiveDamage(reason, message)


def write_unpacked(reader: RangeReader, kind: str, out: IO[bytes]) -> None:
    """Writes the unpacked data of a compressed file, as much as can be unpacked, and its damage.

    Args:
      reader: Reader of the compressed file.
      kind: Kind of compression.
      out: Spool file.

    Raises:
      EngineError: if the file changed while it was read.
      OSError: if the file cannot be read, or the spool file cannot be written.
    """
    length, damage = 0, None
    try:
        for piece, read in _pieces(reader, kind):
            most = min(MAX_UNPACKED_BYTES, max(SMALL_BYTES, MAX_RATIO * read))
            out.write(piece[: most - length])
            length += len(piece)
            UNDERWAY.progress()
            if length > most:
                length = most
                raise _Stop(
                    QuarantineReason.TOO_LARGE,
                    f"its first {format_size(read)} unpack to more than {format_size(most)}; the rest is "
                    "left out",
                )
    except _Stop as stop:
        damage = stop.damage
    note = json.dumps({"length": length, "damage": damage}).encode()
    out.write(note + _FOOTER.pack(len(note), _SIGN))


def read_footer(reader: RangeReader) -> Unpacked:
    """Reads the description at the end of a spool file."""
    note_length, sign = _FOOTER.unpack(reader.read_at(reader.size - _FOOTER.size, _FOOTER.size))
    if sign != _SIGN:
        raise ValueError(f"{reader.path} is not a spool file")
    note = json.loads(reader.read_at(reader.size - _FOOTER.size - note_length, note_length))
    return Unpacked(note["length"], ArchiveDamage(*note["damage"]) if note["damage"] else None)


def _pieces(reader: RangeReader, kind: str) -> Iterator[tuple[bytes, int]]:
    """Yields (unpacked bytes, compressed bytes read so far); joined streams follow each other."""
    position, is_later_stream = 0, False
    while position < reader.size:
        head = reader.read_at(position, _MAX_MAGIC_BYTES)
        if kind == ZSTD and head[1:4] == _SKIPPABLE and head[0] & 0xF0 == 0x50:
            position += 8 + int.from_bytes(head[4:8], "little")
            continue
        if is_later_stream and not head.startswith(_MAGIC[kind]):
            if head.startswith(b"\0"):  # padding
                position += len(head) - len(head.lstrip(b"\0"))
                continue
            return  # garbage after the last stream is ignored, as gzip does
        is_later_stream = True
        position = yield from _stream_pieces(reader, kind, position)
    if not is_later_stream:
        raise _Stop(QuarantineReason.TRUNCATED, f"it holds no {kind} data")


def _stream_pieces(reader: RangeReader, kind: str, position: int) -> Generator[tuple[bytes, int], None, int]:
    """Yields the pieces of one stream; returns the position of its end."""
    decoder = _DECODERS[kind]()
    while not decoder.eof:
        data = reader.read_at(position, _BITES[kind])
        if not data:
            raise _Stop(QuarantineReason.TRUNCATED, f"its {kind} data ends early, at byte {position}")
        position += len(data)
        before = decoder.copy() if kind == GZIP else None
        try:
            yield decoder.decompress(data, _PIECE), position
            while not decoder.eof and _has_more(decoder, kind):
                before, data = (decoder.copy(), decoder.unconsumed_tail) if kind == GZIP else (None, b"")
                yield decoder.decompress(data, _PIECE), position
        except _FAULTS as error:
            if before is not None:
                yield from _up_to_fault(before, data, position)
            raise _Stop(
                QuarantineReason.CORRUPT,
                f"its {kind} data is damaged near byte {position}: {words_of(error)}",
            ) from error
    return position - len(decoder.unused_data)


def _has_more(decoder: Any, kind: str) -> bool:
    """Returns whether a decoder can give more output for its input so far."""
    return bool(decoder.unconsumed_tail) if kind == GZIP else not decoder.needs_input


def _up_to_fault(decoder: Any, data: bytes, position: int) -> Iterator[tuple[bytes, int]]:
    """Unpacks damaged data byte by byte; yields the pieces before the fault."""
    for place in range(len(data)):
        try:
            yield decoder.decompress(data[place : place + 1]), position
        except zlib.error:
            return


class _ZstdDecoder:
    """Decoder of a zstd frame, with the methods of the standard library's decoders."""

    needs_input = True

    def __init__(self) -> None:
        self._decoder = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompressobj()

    def decompress(self, data: bytes, limit: int) -> bytes:
        """Unpacks all data that is given; the pieces are small, so their output is small too."""
        return self._decoder.decompress(data)

    @property
    def eof(self) -> bool:
        """Returns whether the frame is complete."""
        return self._decoder.eof

    @property
    def unused_data(self) -> bytes:
        """Data after the end of the frame."""
        return self._decoder.unused_data


_FAULTS = (zlib.error, OSError, EOFError, ValueError, lzma.LZMAError, zstandard.ZstdError, MemoryError)
_SKIPPABLE = b"\x2a\x4d\x18"
_MAGIC = {GZIP: b"\x1f\x8b", BZIP2: b"BZh", XZ: b"\xfd7zXZ\0", ZSTD: b"\x28\xb5\x2f\xfd"}
_MAX_MAGIC_BYTES = 8
_DECODERS: dict[str, Callable[[], Any]] = {
    GZIP: lambda: zlib.decompressobj(31),
    BZIP2: bz2.BZ2Decompressor,
    XZ: lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_DECODER_BYTES),
    ZSTD: _ZstdDecoder,
}
