"""Unpacks compressed tars, up to a size limit."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import zlib
from typing import IO, Any

import zstandard

from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.sources.archives.members import (
    MAX_RATIO,
    MAX_UNPACKED_BYTES,
    SMALL_BYTES,
    ArchiveDamage,
)
from shardwright.core.storage.ranges import RangeReader, file_of
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import words_of
from shardwright.schemas.units import format_size

GZIP, BZIP2, XZ, ZSTD = "gzip", "bzip2", "xz", "zstd"
#: Kinds that hold a compressed tar, which must be unpacked before its members can be read.
COMPRESSED = (GZIP, BZIP2, XZ, ZSTD)
#: Most unpacked bytes at once.
_PIECE = 1 << 20
#: Packed bytes that are read at once.
_BITE = 1 << 16
#: Memory limits for decoders: enough for `xz -9` and `zstd --ultra`.
_MAX_XZ_BYTES, _MAX_ZSTD_WINDOW = 256 << 20, 128 << 20
_FAULTS = (zlib.error, OSError, EOFError, ValueError, lzma.LZMAError, zstandard.ZstdError, MemoryError)


class _XzReader(io.RawIOBase):
    """Reads xz data like `lzma.LZMAFile`, which has no limit for the memory of its decoder."""

    def __init__(self, packed: IO[bytes]) -> None:
        super().__init__()
        self._packed = packed
        self._decoder = self._new_decoder()

    @staticmethod
    def _new_decoder() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_XZ_BYTES)

    def readable(self) -> bool:
        """Returns true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Unpacks the next bytes into a buffer; returns their number, 0 at the end."""
        data = b""
        while not data:
            packed = b""
            if self._decoder.eof:
                packed = self._decoder.unused_data.lstrip(b"\0") or self._packed.read(_BITE).lstrip(b"\0")
                if not packed:
                    return 0
                self._decoder = self._new_decoder()
            elif self._decoder.needs_input:
                packed = self._packed.read(_BITE)
                if not packed:
                    raise EOFError("the xz data ends early")
            data = self._decoder.decompress(packed, len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _open_unpacked(packed: Any, kind: str) -> Any:
    """Returns a file object with the unpacked data of a compressed file; joined streams follow each other."""
    if kind == GZIP:
        return gzip.GzipFile(fileobj=packed)
    if kind == BZIP2:
        return bz2.BZ2File(packed)
    if kind == XZ:
        return io.BufferedReader(_XzReader(packed))
    decoder = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW)
    return decoder.stream_reader(packed, read_across_frames=True)


def unpack_head(head: bytes, kind: str, limit: int) -> bytes:
    """Returns the unpacked data of a compressed file's first bytes, as much as can be unpacked."""
    data = bytearray()
    # A head ends early, and reading the file later reports other damage.
    with contextlib.suppress(*_FAULTS), _open_unpacked(io.BytesIO(head), kind) as file:
        while len(data) < limit and (piece := file.read1(limit - len(data))):
            data += piece
    return bytes(data)


def unpack_tar(reader: RangeReader, kind: str, out: IO[bytes]) -> None:
    """Writes the unpacked data of a compressed file.

    Args:
      reader: Reader of the compressed file.
      kind: Kind of compression.
      out: Spool file.

    Raises:
      ArchiveDamage: If the data is damaged, or unpacks to more than the limit.
      EngineError: If the file changed while it was read.
      OSError: If the file cannot be read, or the spool file cannot be written.
    """
    packed, length = io.BufferedReader(file_of(reader), _BITE), 0
    try:
        with _open_unpacked(packed, kind) as file:
            while piece := file.read1(_PIECE):
                length += len(piece)
                most = min(MAX_UNPACKED_BYTES, max(SMALL_BYTES, MAX_RATIO * packed.tell()))
                if length > most:
                    raise ArchiveDamage(
                        QuarantineReason.TOO_LARGE,
                        f"its first {format_size(packed.tell())} unpack to more than {format_size(most)}; "
                        "pack its images into a plain tar",
                    )
                out.write(piece)
                UNDERWAY.progress()
    except EOFError:
        raise ArchiveDamage(
            QuarantineReason.TRUNCATED, f"its {kind} data ends early; copy or download it again"
        ) from None
    except _FAULTS as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ArchiveDamage(
            QuarantineReason.CORRUPT, f"its {kind} data is damaged ({words_of(error)}); copy or pack it again"
        ) from error
