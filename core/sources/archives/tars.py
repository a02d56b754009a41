"""Lists the members of tars, with `tarfile`, and unpacks compressed ones, up to a size limit."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

import zstandard

from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.sources.archives.members import (
    ArchiveDamage,
    HeaderFile,
    ReadAt,
    member_ref,
    most_unpacked,
    tidy_name,
)
from shardwright.core.storage.ranges import RangeReader, file_of
from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import words_of
from shardwright.schemas.image_ref import ImageRef
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
#: What decoders raise for damaged data.
_PACKED_FAULTS = (zlib.error, OSError, EOFError, ValueError, lzma.LZMAError, zstandard.ZstdError, MemoryError)


def _unpacked(packed: Any, kind: str) -> Iterator[bytes]:
    """Yields the unpacked data of a compressed file in pieces; joined streams follow each other."""
    if kind == XZ:
        yield from _unpacked_xz(packed)
        return
    file: Any
    if kind == GZIP:
        file = gzip.GzipFile(fileobj=packed)
    elif kind == BZIP2:
        file = bz2.BZ2File(packed)
    else:
        decoder = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW)
        file = decoder.stream_reader(packed, read_across_frames=True)
    with file:
        yield from iter(lambda: file.read1(_PIECE), b"")


def _unpacked_xz(packed: IO[bytes]) -> Iterator[bytes]:
    """Yields unpacked data like `lzma.LZMAFile`, which has no limit for the memory of its decoder."""
    data = packed.read(_BITE)
    while data:
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_XZ_BYTES)
        while not decoder.eof:
            if decoder.needs_input and not (data := data or packed.read(_BITE)):
                raise EOFError("the xz data ends early")
            yield decoder.decompress(data, _PIECE)
            data = b""
        # Zeros may stand between joined streams, and after the last one.
        data = decoder.unused_data.lstrip(b"\0")
        while not data and (padding := packed.read(_BITE)):
            data = padding.lstrip(b"\0")


def unpack_head(head: bytes, kind: str, limit: int) -> bytes:
    """Returns the unpacked data of a compressed file's first bytes, as much as can be unpacked."""
    data = bytearray()
    # A head ends early, and reading the file later reports other damage.
    with contextlib.suppress(*_PACKED_FAULTS):
        for piece in _unpacked(io.BytesIO(head), kind):
            data += piece
            if len(data) >= limit:
                break
    return bytes(data[:limit])


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
        for piece in _unpacked(packed, kind):
            length += len(piece)
            most = most_unpacked(packed.tell())
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
    except _PACKED_FAULTS as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ArchiveDamage(
            QuarantineReason.CORRUPT, f"its {kind} data is damaged ({words_of(error)}); copy or pack it again"
        ) from error


BLOCK = tarfile.BLOCKSIZE
#: Most bytes of all headers of one member; no valid name needs more.
_MAX_HEADER_BYTES = 1 << 20
#: Most global headers, which apply to all members after them.
_MAX_GLOBAL_HEADERS = 1000
#: Most zero bytes to skip after the end mark in search of more members.
_MAX_ZEROS = 256 << 20
#: Programs that store no modification times write one up to a day after the start of DOS time.
_NO_TIME, _LATEST_TIME = 315_532_800 + 86_400, 1 << 62
_UNSAFE_TYPES = {
    tarfile.LNKTYPE: "it is a hard link",
    tarfile.SYMTYPE: "it is a symbolic link",
    tarfile.CHRTYPE: "it is a device",
    tarfile.BLKTYPE: "it is a device",
    tarfile.FIFOTYPE: "it is a named pipe",
    b"M": "it is the rest of a file that began in another archive",
}
_VOLUME_LABEL, _DUMPED_FOLDER = b"V", b"D"
#: What `tarfile` raises for damaged headers.
_HEADER_FAULTS = (tarfile.TarError, ValueError, IndexError, OverflowError, RecursionError)


def is_tar_head(head: bytes) -> bool:
    """Returns whether a file's first bytes are a header of a tar, or the end mark of an empty one."""
    if not any(head[: 2 * BLOCK]):
        return len(head) >= 2 * BLOCK
    try:
        tarfile.TarInfo.frombuf(head[:BLOCK], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def list_tar(read_at: ReadAt, whole: ByteRange, state: str = "") -> Iterator[ImageRef | None]:
    """Yields the members of a tar in their order, and those of tars that are joined to it; None for folders.

    Args:
      read_at: Function that reads the file.
      whole: All bytes of the file.
      state: State of the archive, which marks members whose headers have no time.

    Raises:
      ArchiveDamage: After the members before the damage.
    """
    file = HeaderFile(read_at, whole.length, _MAX_HEADER_BYTES)
    position = zeros = 0
    try:
        tar = tarfile.TarFile(fileobj=file, encoding="utf-8", errors="surrogateescape")
        while True:
            file.start_again()
            file.seek(position)
            try:
                info = tarfile.TarInfo.fromtarfile(tar)
            except tarfile.HeaderError:
                block = read_at(position, BLOCK)
                if any(block) and (zeros or len(block) == BLOCK):
                    raise
                if any(block) or not (block or zeros):
                    raise ArchiveDamage(
                        QuarantineReason.TRUNCATED,
                        "it ends without an end mark, so members may be missing; copy or download it again",
                    ) from None
                if not block:
                    return
                # Zeros are the end mark, but another tar may follow.
                position, zeros = position + len(block), zeros + len(block)
                if zeros > _MAX_ZEROS:
                    raise tarfile.ReadError("only zeros follow") from None
                tar.pax_headers = {}
                continue
            position, zeros = tar.offset, 0
            if min(info.size, position - info.offset_data) < 0:
                raise tarfile.ReadError("a size is negative")
            if len(tar.pax_headers) > _MAX_GLOBAL_HEADERS:
                raise tarfile.ReadError("it has too many global headers")
            if info.type != _VOLUME_LABEL:
                yield _member(info, whole, state)
    except _HEADER_FAULTS as error:
        raise ArchiveDamage(
            QuarantineReason.CORRUPT,
            f"its headers cannot be read from byte {position} on ({words_of(error)}), so later members "
            "are missing; copy or pack it again",
        ) from None


def _member(info: tarfile.TarInfo, whole: ByteRange, state: str) -> ImageRef | None:
    fault = None
    if why := "it is a sparse file" if info.issparse() else _UNSAFE_TYPES.get(info.type, ""):
        fault = QuarantineReason.UNSAFE_MEMBER.value, why
    elif info.offset_data + info.size > whole.length:
        there = max(0, whole.length - info.offset_data)
        fault = QuarantineReason.TRUNCATED.value, f"the archive ends after {there} of its {info.size} bytes"
    return member_ref(
        tidy_name(info.name),
        whole._replace(offset=info.offset_data, length=info.size),
        info.size,
        str(int(info.mtime)) if _NO_TIME < info.mtime < _LATEST_TIME else state,
        info.isdir() or info.type == _DUMPED_FOLDER or (info.isreg() and info.name.endswith("/")),
        fault,
    )
