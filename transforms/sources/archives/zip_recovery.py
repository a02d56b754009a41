"""Finds the members of a zip without its directory, from one local header to the next."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator

from shardwright.schemas.codes import QuarantineReason
from shardwright.transforms.sources.archives.members import MAX_MEMBERS, MAX_NAME_BYTES, ArchiveDamage, Member
from shardwright.transforms.sources.archives.zip_headers import Fields, make_member, with_zip64
from shardwright.transforms.storage.ranges import RangeReader

_LOCAL = struct.Struct("<4s5H3L2H")  # APPNOTE.TXT 4.3.7
_LOCAL_SIGN, _CENTRAL_SIGN, _DESCRIPTOR_SIGN = b"PK\3\4", b"PK\1\2", b"PK\7\x08"
_SIZES_FOLLOW = 1 << 3
_FULL32 = 0xFFFFFFFF
#: Highest "version needed to extract"; bytes with a higher one only look like a header.
_MAX_VERSION = 63
_KNOWN_METHODS = frozenset((0, 1, 6, 8, 9, 12, 14, 93, 95, 96, 98, 99))
_SEARCH_STEP = 1 << 20


def recover_members(reader: RangeReader, known: array[int]) -> Iterator[Member | ArchiveDamage]:
    """Yields the members whose headers are found, except the known members.

    Args:
      reader: Reader of the file.
      known: Offsets of members that the directory still lists.
    """
    seen = set(known)
    position, count = _find(reader, 0, (_LOCAL_SIGN,)), len(seen)
    while position >= 0:
        fields, begin = _read_local(reader, position)
        if fields is None:
            position = _find(reader, position + 4, (_LOCAL_SIGN,))
            continue
        fields, following = _with_sizes(reader, fields, begin)
        if position not in seen:
            yield _recovered(reader, fields, begin)
            count += 1
        if count >= MAX_MEMBERS:
            yield ArchiveDamage(
                QuarantineReason.TOO_LARGE, f"it has more than {MAX_MEMBERS} members; the rest is left out"
            )
            return
        sign = reader.read_at(following, 4)
        if sign == _CENTRAL_SIGN:
            return
        position = following if sign == _LOCAL_SIGN else _find(reader, max(begin, 4), (_LOCAL_SIGN,))


def _read_local(reader: RangeReader, position: int) -> tuple[Fields | None, int]:
    """Returns the fields of a local header and where its data begins; None if it is not a header."""
    fixed = reader.read_at(position, _LOCAL.size)
    if len(fixed) < _LOCAL.size:
        return None, position
    _, version, flags, method, _, _, crc32, length, size, name_length, extra_length = _LOCAL.unpack(fixed)
    begin = position + _LOCAL.size + name_length + extra_length
    sound = version & 0xFF <= _MAX_VERSION and method in _KNOWN_METHODS and 0 < name_length <= MAX_NAME_BYTES
    if not sound or begin > reader.size:
        return None, position
    rest = reader.read_at(position + _LOCAL.size, name_length + extra_length)
    extra = rest[name_length:]
    if _FULL32 in (size, length):
        size, length = with_zip64(extra, size, length)
    fields = Fields(0, flags, method, crc32, length, size, rest[:name_length], extra, 0, position)
    return fields, begin


def _with_sizes(reader: RangeReader, fields: Fields, begin: int) -> tuple[Fields, int]:
    """Returns the fields, with the sizes after the data if they are there, and the next position."""
    if not fields.flags & _SIZES_FOLLOW or fields.length:
        end = begin + fields.length
        return fields, _behind_descriptor(reader, fields, end)
    place = begin
    while (place := _find(reader, place, (_DESCRIPTOR_SIGN, _LOCAL_SIGN))) >= 0:
        found = reader.read_at(place, 24)
        if not found.startswith(_DESCRIPTOR_SIGN):
            fixed, _ = _read_local(reader, place)
            if fixed is not None:
                break
        for form in ("<4sLLL", "<4sLQQ"):
            if len(found) >= struct.calcsize(form):
                _, crc32, length, size = struct.unpack_from(form, found)
                if length == place - begin and found.startswith(_DESCRIPTOR_SIGN):
                    fields = fields._replace(crc32=crc32, length=length, size=size)
                    return fields, place + struct.calcsize(form)
        place += 4
    return fields._replace(length=-1, size=-1), begin


def _behind_descriptor(reader: RangeReader, fields: Fields, end: int) -> int:
    if not fields.flags & _SIZES_FOLLOW:
        return end
    return next(
        (end + skip for skip in (16, 24) if reader.read_at(end + skip, 4) in (_LOCAL_SIGN, _CENTRAL_SIGN)),
        end,
    )


def _recovered(reader: RangeReader, fields: Fields, begin: int) -> Member:
    member = make_member(fields)
    if fields.length < 0:
        return member._replace(length=0, size=-1, crc32=-1).at_fault(
            QuarantineReason.CORRUPT,
            "the archive's directory is missing, and nothing else says where the member ends",
        )
    if begin + fields.length > reader.size:
        return member.at_fault(
            QuarantineReason.TRUNCATED,
            f"the archive ends after {max(0, reader.size - begin)} of its {fields.length} bytes",
        )
    return member


def _find(reader: RangeReader, position: int, signs: tuple[bytes, ...]) -> int:
    """Returns the next position of any of the signatures; -1 if there is none."""
    while position + 4 <= reader.size:
        data = reader.read_at(position, min(_SEARCH_STEP, reader.size - position))
        found = min((place for place in map(data.find, signs) if place >= 0), default=-1)
        if found >= 0:
            return position + found
        position += len(data) - 3
    return -1
