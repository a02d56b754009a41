"""Lists the members of zips, with `zipfile`.

Sections are those of PKWARE's APPNOTE.TXT 6.3.10.
"""

from __future__ import annotations

import stat
import struct
import zipfile
from collections.abc import Iterator, Sequence

from shardwright.core import storage
from shardwright.core.sources.archives.members import (
    ArchiveDamage,
    HeaderFile,
    member_ref,
    most_unpacked,
    tidy_name,
)
from shardwright.core.storage.ranges import RangeReader
from shardwright.schemas.byte_range import BZIP2, DEFLATE, LZMA, STORED, ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import words_of
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.units import format_size

#: Most bytes of the directory, which `zipfile` holds in memory: enough for more than two million members.
_MAX_DIRECTORY_BYTES = 320 << 20
#: The end record's signature, and its longest distance from the end of the file (4.3.16).
END_SIGN, MAX_END_BYTES = b"PK\5\6", 22 + 0xFFFF
#: Fixed part of a local header (4.3.7).
_LOCAL_BYTES = 30
_METHODS = {0: STORED, 8: DEFLATE, 12: BZIP2, 14: LZMA}
#: Flags; strong encryption and AES set the first one, too (4.4.4).
_ENCRYPTED, _UTF8 = 1 << 0, 1 << 11
#: Largest ratio of unpacked to packed bytes: deflate's own bound, and that of `read_part`.
_MAX_DEFLATE, _MAX_OTHERS = 1032, 1_000_000
_FAT_HOSTS = (0, 10, 11, 14)
#: What `zipfile` raises for a damaged directory.
_FAULTS = (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, struct.error)


def list_zip(reader: RangeReader, whole: ByteRange) -> Iterator[ImageRef | None]:
    """Yields the members of a zip in the order of its directory; None for folders.

    Args:
      reader: Reader of the file.
      whole: All bytes of the file.

    Raises:
      ArchiveDamage: If the directory is damaged, or after the members within the limits.
    """
    infos = _directory(reader)
    overlapping = _overlapping(infos, reader.size)
    # Reading a member later enforces the size that is counted here.
    most, total = most_unpacked(reader.size), 0
    for index, info in enumerate(infos):
        ref = _member(info, whole, index in overlapping)
        total += ref.size if ref and ref.is_candidate else 0
        if ref and total > most:
            raise ArchiveDamage(
                QuarantineReason.TOO_LARGE,
                f"its members unpack to more than {format_size(most)}; those from {ref.key[:200]} on are "
                "left out",
            )
        yield ref


def _directory(reader: RangeReader) -> list[zipfile.ZipInfo]:
    """Returns the entries of the directory.

    Raises:
      ArchiveDamage: If it is missing or damaged.
    """
    if END_SIGN not in reader.read_at(max(0, reader.size - MAX_END_BYTES), MAX_END_BYTES):
        raise ArchiveDamage(
            QuarantineReason.TRUNCATED,
            "its directory at the end is missing, as when a download was cut off; copy or download it again",
        )

    def read_at(offset: int, length: int) -> bytes:
        with storage.translated_errors("read", reader.path):  # zipfile takes an OSError for damage
            return reader.read_at(offset, length)

    try:
        with zipfile.ZipFile(HeaderFile(read_at, reader.size, _MAX_DIRECTORY_BYTES)) as archive:
            return archive.infolist()
    except _FAULTS as error:
        raise ArchiveDamage(
            QuarantineReason.CORRUPT,
            f"its directory cannot be read ({words_of(error)}); copy or pack it again, or join its volumes",
        ) from None


def _overlapping(infos: Sequence[zipfile.ZipInfo], size: int) -> frozenset[int]:
    """Returns the indices of members that share bytes with others, as in zip bombs."""
    overlapping: set[int] = set()
    reached, last = 0, -1
    for index in sorted(range(len(infos)), key=lambda index: infos[index].header_offset):
        begin, end = infos[index].header_offset, _least_end(infos[index])
        if end > size:
            continue  # `_member` quarantines it
        if begin < reached:
            overlapping |= {index, last}
        if end > reached:
            reached, last = end, index
    return frozenset(overlapping)


def _least_end(info: zipfile.ZipInfo) -> int:
    """Returns the earliest position where a member can end, whose local header may have an extra field."""
    return info.header_offset + _LOCAL_BYTES + len(_raw_name(info)) + info.compress_size


def _raw_name(info: zipfile.ZipInfo) -> bytes:
    """Returns the bytes of a member's name, which `zipfile` has decoded by its flag."""
    return info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")


def _name(info: zipfile.ZipInfo) -> str:
    """Returns a member's name as text, decoded as UTF-8 or as code page 437."""
    try:
        name = _raw_name(info).decode()
    except UnicodeDecodeError:
        name = info.orig_filename
    if "\\" in name and "/" not in name and info.create_system in _FAT_HOSTS:
        name = name.replace("\\", "/")
    return tidy_name(name)


def _member(info: zipfile.ZipInfo, whole: ByteRange, overlaps: bool) -> ImageRef | None:
    name = _name(info)
    is_folder = name.endswith("/") or stat.S_ISDIR(info.external_attr >> 16)
    fault = _fault(info, is_folder, whole.length)
    if overlaps and not fault:
        fault = QuarantineReason.UNSAFE_MEMBER, "it shares bytes with another member"
    place = whole._replace(
        offset=info.header_offset,
        length=info.compress_size,
        method=_METHODS.get(info.compress_type, ""),
        name=_raw_name(info).decode("utf-8", "surrogateescape"),
        crc32=info.CRC,
    )
    return member_ref(name, place, info.file_size, f"{info.CRC:08x}", is_folder, fault)


def _fault(info: zipfile.ZipInfo, is_folder: bool, archive_size: int) -> tuple[str, str] | None:
    """Returns the quarantine reason and the message of a member that cannot be used, by its entry."""
    mode, packed = info.external_attr >> 16, info.compress_size
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        what = "a symbolic link" if stat.S_ISLNK(mode) else "a device, a pipe or a socket"
        return QuarantineReason.UNSAFE_MEMBER, f"it is {what}"
    if _least_end(info) > archive_size:
        return QuarantineReason.TRUNCATED, f"the archive ends inside its {packed} bytes"
    if is_folder:
        return None
    if info.flag_bits & _ENCRYPTED:
        return QuarantineReason.UNREADABLE, "it is encrypted"
    method = _METHODS.get(info.compress_type)
    if not method:
        return (
            QuarantineReason.UNSUPPORTED_FORMAT,
            f"it is compressed with method {info.compress_type}; pack it again with Deflate",
        )
    # At most this many bytes can, or are allowed to, become of the packed bytes.
    most = packed if method == STORED else 64 + packed * (_MAX_DEFLATE if method == DEFLATE else _MAX_OTHERS)
    if info.file_size > most:
        return (
            QuarantineReason.CORRUPT,
            f"its header says {info.file_size} bytes, but {packed} packed bytes cannot become so many",
        )
    return None
