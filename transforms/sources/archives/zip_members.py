"""Lists the members of a zip from its central directory, or from local headers if that is damaged.

The layouts are those of PKWARE's APPNOTE.TXT 6.3.10; its sections are named.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from shardwright.schemas.codes import QuarantineReason
from shardwright.transforms.sources.archives.members import MAX_MEMBERS, ArchiveDamage, Member
from shardwright.transforms.sources.archives.zip_headers import Fields, make_member, with_zip64
from shardwright.transforms.sources.archives.zip_recovery import recover_members
from shardwright.transforms.storage.ranges import RangeReader

_CENTRAL = struct.Struct("<4s6H3L5H2L")  # 4.3.12
_CENTRAL_SIGN = b"PK\1\2"
_END = struct.Struct("<4s4H2LH")  # 4.3.16
_END_SIGN = b"PK\5\6"
_LOCATOR = struct.Struct("<4sLQL")  # 4.3.15
_END64 = struct.Struct("<4sQ2H2L4Q")  # 4.3.14
_MAX_COMMENT = 0xFFFF
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF


class _Directory(NamedTuple):
    """Position of the central directory.

    Attributes:
      begin: Position of its first byte in the file.
      end: Position after its last byte.
      shift: Number to add to all offsets; not zero if a program precedes the archive.
      entries: Number of entries that the end record states.
    """

    begin: int
    end: int
    shift: int
    entries: int


def list_zip(reader: RangeReader) -> Iterator[Member | ArchiveDamage]:
    """Yields the members of a zip in the order of its directory, and what is damaged."""
    directory = _find_directory(reader)
    if isinstance(directory, ArchiveDamage):
        yield directory
        if directory.reason == QuarantineReason.UNSUPPORTED_FORMAT:
            return
        yield from recover_members(reader, array("Q"))
        return
    offsets = array("Q")
    position = directory.begin
    while position < directory.end:
        found = _read_central(reader, position, directory)
        if found is None:
            break
        fields, position = found
        member = make_member(fields)
        if not 0 <= fields.offset < directory.begin:
            member = member.at_fault(
                QuarantineReason.CORRUPT,
                f"the directory says that it is at byte {fields.offset}, where no member can be",
            )._replace(offset=0)
        elif fields.offset + fields.length > directory.begin:
            member = member.at_fault(
                QuarantineReason.TRUNCATED, f"the archive ends inside its {fields.length} bytes"
            )
        offsets.append(member.offset)
        yield member
        if len(offsets) >= MAX_MEMBERS:
            yield ArchiveDamage(
                QuarantineReason.TOO_LARGE, f"it has more than {MAX_MEMBERS} members; the rest is left out"
            )
            return
    expected = directory.entries
    if position < directory.end or len(offsets) & _FULL16 != expected & _FULL16:
        yield ArchiveDamage(
            QuarantineReason.CORRUPT,
            f"its directory is damaged at byte {position}, after {len(offsets)} of {expected} members; "
            "other members are searched between them",
        )
        yield from recover_members(reader, offsets)


def _find_directory(reader: RangeReader) -> _Directory | ArchiveDamage:
    size = reader.size
    tail_begin = max(0, size - _MAX_COMMENT - _END.size)
    tail = reader.read_at(tail_begin, size - tail_begin)
    place = tail.rfind(_END_SIGN)
    while place >= 0:
        if place + _END.size <= len(tail):
            directory = _directory_at(reader, tail[place : place + _END.size], tail_begin + place)
            if directory is not None:
                return directory
        place = tail.rfind(_END_SIGN, 0, place)
    return ArchiveDamage(
        QuarantineReason.TRUNCATED,
        "its directory is missing, as when a download was cut off; members are searched one by one",
    )


def _directory_at(reader: RangeReader, record: bytes, position: int) -> _Directory | ArchiveDamage | None:
    """Returns the directory that an end record describes, or None if it is not there."""
    _, disk, first_disk, _, entries, length, offset, _ = _END.unpack(record)
    end = position
    locator = reader.read_at(position - _LOCATOR.size, _LOCATOR.size) if position >= _LOCATOR.size else b""
    if locator.startswith(b"PK\6\7") and len(locator) == _LOCATOR.size:
        _, _, end64, _ = _LOCATOR.unpack(locator)
        # After a program, the record is not where the locator says, but right before the locator.
        for place in (end64, position - _LOCATOR.size - _END64.size):
            found = reader.read_at(place, _END64.size)
            if found.startswith(b"PK\6\6") and len(found) == _END64.size:
                _, _, _, _, disk, first_disk, _, entries, length, offset = _END64.unpack(found)
                end = place
                break
    if disk not in (0, _FULL16, _FULL32) or first_disk not in (0, _FULL16, _FULL32):
        return ArchiveDamage(
            QuarantineReason.UNSUPPORTED_FORMAT,
            f"it is one of several volumes (number {disk + 1}); join them",
        )
    for begin in (end - length, offset):
        if begin < 0 or begin + length > end:
            continue
        if length == 0 and entries == 0:
            return _Directory(end, end, 0, 0)
        if reader.read_at(begin, 4) == _CENTRAL_SIGN:
            return _Directory(begin, begin + length, begin - offset, entries)
    return None


def _read_central(reader: RangeReader, position: int, directory: _Directory) -> tuple[Fields, int] | None:
    """Returns the fields of an entry and the position after it; None if the entry is not valid."""
    fixed = reader.read_at(position, _CENTRAL.size)
    if len(fixed) < _CENTRAL.size or not fixed.startswith(_CENTRAL_SIGN):
        return None
    (
        _, made_by, _, flags, method, _, _, crc32, length, size,
        name_length, extra_length, comment_length, _, _, attributes, offset,
    ) = _CENTRAL.unpack(fixed)  # fmt: skip
    begin = position + _CENTRAL.size
    following = begin + name_length + extra_length + comment_length
    if following > directory.end:
        return None
    if following < directory.end and reader.read_at(following, 4) != _CENTRAL_SIGN:
        signature = reader.read_at(following, 4)
        if signature != b"PK\5\5":  # a signature of the directory itself, 4.3.13
            return None
        following = directory.end
    rest = reader.read_at(begin, name_length + extra_length)
    extra = rest[name_length:]
    size, length, offset = with_zip64(extra, size, length, offset)
    fields = Fields(
        made_by >> 8,
        flags,
        method,
        crc32,
        length,
        size,
        rest[:name_length],
        extra,
        attributes,
        offset + directory.shift,
    )
    return fields, following
