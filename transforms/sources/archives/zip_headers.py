"""Reads the central and local headers of a zip's members.

The layouts are those of PKWARE's APPNOTE.TXT 6.3.10; its sections are named.
"""

from __future__ import annotations

import stat
import struct
import zlib
from typing import NamedTuple

from shardwright.schemas.byte_range import BZIP2, DEFLATE, LZMA, STORED
from shardwright.schemas.codes import QuarantineReason
from shardwright.transforms.sources.archives.members import Member, decode_name, tidy_name

_METHODS = {0: STORED, 8: DEFLATE, 12: BZIP2, 14: LZMA}
_METHOD_NAMES = {1: "shrink", 6: "implode", 9: "Deflate64", 93: "Zstandard", 95: "XZ", 96: "JPEG", 98: "PPMd"}
_FULL32 = 0xFFFFFFFF
_ZIP64, _UNICODE_PATH = 0x0001, 0x7075
_ENCRYPTED, _STRONG, _UTF8 = 1 << 0, 1 << 6, 1 << 11
#: Largest ratio of unpacked to packed bytes: deflate's own bound, and that of `read_part`.
_MAX_DEFLATE, _MAX_OTHERS = 1032, 1_000_000
_FAT_HOSTS = (0, 10, 11, 14)
_DOS_FOLDER = 0x10


class Fields(NamedTuple):
    """Fields of a member's central or local header."""

    host: int
    flags: int
    method: int
    crc32: int
    length: int
    size: int
    raw_name: bytes
    extra: bytes
    attributes: int
    offset: int


def with_zip64(extra: bytes, *values: int) -> list[int]:
    """Returns the numbers; those that do not fit into 32 bits come from the extra field (4.5.3)."""
    if _FULL32 not in values:
        return list(values)
    wide = find_extra(extra, _ZIP64)
    numbers = iter(struct.unpack(f"<{len(wide) // 8}Q", wide[: len(wide) // 8 * 8]))
    return [next(numbers, value) if value == _FULL32 else value for value in values]


def find_extra(extra: bytes, wanted: int) -> bytes:
    """Returns the data of one of the extra fields; empty if it is missing."""
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, position)
        if kind == wanted:
            return extra[position + 4 : position + 4 + length]
        position += 4 + length
    return b""


def member_name(fields: Fields) -> str:
    """Returns a member's name as text, decoded by its flag, Info-ZIP's field, UTF-8 or code page 437."""
    raw = fields.raw_name
    if not raw.isascii() and not fields.flags & _UTF8:
        unicode_path = find_extra(fields.extra, _UNICODE_PATH)
        if unicode_path[:1] == b"\1" and unicode_path[1:5] == struct.pack("<L", zlib.crc32(raw)):
            raw = unicode_path[5:]
        else:
            try:
                raw.decode("utf-8")
            except UnicodeDecodeError:
                raw = raw.decode("cp437").encode()
    name = decode_name(raw)
    if "\\" in name and "/" not in name and fields.host in _FAT_HOSTS:
        name = name.replace("\\", "/")
    return tidy_name(name)


def make_member(fields: Fields) -> Member:
    """Returns the member that headers describe, with its fault if it has one."""
    name = member_name(fields)
    mode = fields.attributes >> 16
    member = Member(
        name=name,
        offset=fields.offset,
        length=fields.length,
        size=fields.size,
        mark=f"{fields.crc32:08x}",
        method=_METHODS.get(fields.method, ""),
        local_name=decode_name(fields.raw_name),
        crc32=fields.crc32,
        is_folder=name.endswith("/")
        or stat.S_ISDIR(mode)
        or bool(fields.attributes & _DOS_FOLDER and not fields.size),
    )
    if stat.S_ISLNK(mode):
        return member.at_fault(QuarantineReason.UNSAFE_MEMBER, "it is a symbolic link")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return member.at_fault(QuarantineReason.UNSAFE_MEMBER, "it is a device, a pipe or a socket")
    if member.is_folder:
        return member
    if fields.flags & (_ENCRYPTED | _STRONG) or fields.method == 99:
        return member.at_fault(QuarantineReason.UNREADABLE, "it is encrypted")
    if not member.method:
        method_name = _METHOD_NAMES.get(fields.method, "unknown")
        return member.at_fault(
            QuarantineReason.UNSUPPORTED_FORMAT,
            f"it is compressed with method {fields.method} ({method_name}); pack it again with Deflate",
        )
    if fields.length >= 0 and fields.size > _max_bytes(fields.length, member.method):
        return member.at_fault(
            QuarantineReason.CORRUPT,
            f"its header says {fields.size} bytes, but {fields.length} packed bytes cannot become so many",
        )
    return member


def _max_bytes(length: int, method: str) -> int:
    """Returns the most bytes that packed bytes can, or are allowed to, unpack to."""
    return length if method == STORED else 64 + length * (_MAX_DEFLATE if method == DEFLATE else _MAX_OTHERS)
