"""Lists the members of a tar (v7, ustar, GNU or pax), also of a damaged one.

The layouts are those of POSIX.1-2017 (pax, "ustar Interchange Format") and of GNU tar's manual,
"Basic Tar Format".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from shardwright.schemas.codes import QuarantineReason
from shardwright.transforms.sources.archives.kinds import is_archive_name
from shardwright.transforms.sources.archives.members import (
    MAX_DAMAGES,
    MAX_MEMBERS,
    MAX_NAME_BYTES,
    ArchiveDamage,
    Member,
    decode_name,
    tidy_name,
)
from shardwright.transforms.sources.archives.tar_headers import (
    BLOCK,
    SEARCH_STEP,
    TarHeader,
    find_header,
    parse_header,
)
from shardwright.transforms.storage.ranges import RangeReader

_ZEROS = bytes(BLOCK)
#: Most bytes of an extended header; no valid name needs more.
_MAX_EXTENDED = 1 << 20
#: Most zero bytes to skip after the end mark in search of more members, as after `cat a.tar b.tar`.
_MAX_ZEROS = 256 << 20
#: Programs that store no modification times write one up to a day after the start of DOS time.
_NO_TIME = 315_532_800 + 86_400
_FILE_TYPES = b"0\x007"
_UNSAFE_TYPES = {
    ord("1"): "it is a hard link",
    ord("2"): "it is a symbolic link",
    ord("3"): "it is a device",
    ord("4"): "it is a device",
    ord("6"): "it is a named pipe",
    ord("S"): "it is a sparse file",
    ord("M"): "it is the rest of a file that began in another archive",
}
_LONG_NAME, _LONG_LINK, _PAX, _SOLARIS_PAX, _PAX_FOR_ALL, _VOLUME = b"LKxXgV"


class _Extended(NamedTuple):
    """Fields from the extended headers before a member's own header."""

    name: str | None = None
    size: int | None = None
    mtime: int | None = None
    sparse: bool = False
    problem: str = ""


def list_tar(reader: RangeReader, end: int, state: str = "") -> Iterator[Member | ArchiveDamage]:
    """Yields the members of a tar in their order, and what is damaged.

    Args:
      reader: Reader of the file.
      end: Position in the file where the tar ends.
      state: State of the archive, which marks members whose headers have no time.
    """
    position = members = damages = unsure_from = 0
    last, extended = "", _Extended()
    while True:
        block = reader.read_at(position, min(BLOCK, end - position))
        if len(block) < BLOCK:
            if block.strip(b"\0"):
                yield ArchiveDamage(QuarantineReason.TRUNCATED, f"it ends inside a header at byte {position}")
            elif position == end or not block:
                yield ArchiveDamage(
                    QuarantineReason.TRUNCATED, "it ends without an end mark; members may be missing"
                )
            return
        if block == _ZEROS:
            position = _skip_zeros(reader, position, end)
            if position < 0:
                return
            continue
        header = parse_header(block)
        if header is None:
            # If bytes were lost, the next header is inside the stated length of the last member.
            begin = position if not unsure_from or is_archive_name(last) else unsure_from
            found = find_header(reader, begin, end)
            following = f"the next one is at byte {found}" if found >= 0 else "and no other follows"
            yield ArchiveDamage(
                QuarantineReason.CORRUPT,
                f"there is no valid header at byte {position}, {following}; the bytes between are lost",
                position,
            )
            damages += 1
            if found < 0:
                return
            if damages >= MAX_DAMAGES:
                yield ArchiveDamage(
                    QuarantineReason.CORRUPT, f"it is damaged in more than {MAX_DAMAGES} places"
                )
                return
            position, extended, unsure_from = found, _Extended(), 0
            continue
        begin = position + BLOCK
        if header.type in (_LONG_NAME, _LONG_LINK, _PAX, _SOLARIS_PAX, _PAX_FOR_ALL):
            extended = _extend(extended, reader, header, begin, end)
            position = begin + _whole_blocks(header.size)
            continue
        if header.type == _VOLUME:
            position, extended = begin + _whole_blocks(header.size), _Extended()
            continue
        member = _member(header, extended, begin, state)
        extended = _Extended()
        last, unsure_from = member.name, begin
        if header.type == ord("S"):
            begin = _behind_sparse_map(reader, block, begin, end)
        position = begin + (_whole_blocks(member.length) if _has_data(header.type) else 0)
        if position > end and begin + member.length > end:
            member = member.at_fault(
                QuarantineReason.TRUNCATED,
                f"the archive ends after {max(0, end - begin)} of its {member.length} bytes",
            )
            found = -1 if is_archive_name(member.name) else find_header(reader, begin, end)
            yield member
            if found < 0:
                return
            position = found
        else:
            yield member
        members += 1
        if members >= MAX_MEMBERS:
            yield ArchiveDamage(
                QuarantineReason.TOO_LARGE, f"it has more than {MAX_MEMBERS} members; the rest is left out"
            )
            return


def _whole_blocks(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _has_data(kind: int) -> bool:
    """Returns whether data follows the header; links, devices, folders and pipes have none."""
    return kind not in b"123456"


def _member(header: TarHeader, extended: _Extended, begin: int, state: str) -> Member:
    raw_name = header.name if extended.name is None else extended.name
    size = header.size if extended.size is None else extended.size
    mtime = header.mtime if extended.mtime is None else extended.mtime
    member = Member(
        name=tidy_name(raw_name),
        offset=begin,
        length=size,
        size=size,
        mark=str(mtime) if mtime > _NO_TIME else state,
        is_folder=header.type in b"5D" or (header.type in _FILE_TYPES and raw_name.endswith("/")),
    )
    if extended.problem:
        return member.at_fault(QuarantineReason.CORRUPT, extended.problem)
    if extended.sparse:
        return member.at_fault(QuarantineReason.UNSAFE_MEMBER, "it is a sparse file")
    if header.type in _UNSAFE_TYPES:
        return member.at_fault(QuarantineReason.UNSAFE_MEMBER, _UNSAFE_TYPES[header.type])
    return member


def _extend(known: _Extended, reader: RangeReader, header: TarHeader, begin: int, end: int) -> _Extended:
    """Returns the known fields of the next member, updated from an extended header."""
    if header.type in (_LONG_LINK, _PAX_FOR_ALL):
        return known
    if header.type == _LONG_NAME:
        if header.size > _MAX_EXTENDED:
            return known._replace(problem=f"its header says that its name has {header.size} bytes")
        raw = reader.read_at(begin, min(header.size, MAX_NAME_BYTES + 2, end - begin))
        return known._replace(name=decode_name(raw.split(b"\0", 1)[0]))
    if header.size > _MAX_EXTENDED:
        return known._replace(problem=f"its header says that its extended header has {header.size} bytes")
    records = _pax_records(reader.read_at(begin, min(header.size, end - begin)))
    if records is None:
        return known._replace(problem="its extended header is damaged")
    try:
        if b"path" in records:
            known = known._replace(name=decode_name(records[b"path"]))
        if b"size" in records:
            known = known._replace(size=_decimal(records[b"size"]))
        if b"mtime" in records:
            known = known._replace(mtime=int(float(records[b"mtime"])))
    except (ValueError, OverflowError):
        return known._replace(problem="its extended header is damaged")
    return known._replace(sparse=known.sparse or any(name.startswith(b"GNU.sparse") for name in records))


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > 19:
        raise ValueError
    return int(text)


def _pax_records(data: bytes) -> dict[bytes, bytes] | None:
    """Returns the records `LENGTH NAME=VALUE` of a pax header, or None if they are damaged."""
    records = {}
    position = 0
    while position < len(data) and data[position]:
        space = data.find(b" ", position, position + 20)
        digits = data[position:space]
        if space < 0 or not digits.isdigit():
            return None
        following = position + int(digits)
        name, equals, value = data[space + 1 : following - 1].partition(b"=")
        if (
            following <= space
            or following > len(data)
            or data[following - 1 : following] != b"\n"
            or not equals
        ):
            return None
        records[name] = value
        position = following
    return records


def _behind_sparse_map(reader: RangeReader, block: bytes, begin: int, end: int) -> int:
    """Returns where the data of an old GNU sparse file begins: after the blocks that continue its map."""
    goes_on = block[482]
    while goes_on and begin + BLOCK <= end:
        goes_on = reader.read_at(begin, BLOCK)[504]
        begin += BLOCK
    return begin


def _skip_zeros(reader: RangeReader, position: int, end: int) -> int:
    """Returns the position of more members after an end mark; -1 if there are none.

    Joined archives continue there, and so does an archive with an unfilled hole.
    """
    limit = min(end, position + _MAX_ZEROS)
    while position + BLOCK <= limit:
        data = reader.read_at(position, min(SEARCH_STEP, limit - position) // BLOCK * BLOCK)
        zeros = len(data) - len(data.lstrip(b"\0"))
        position += zeros // BLOCK * BLOCK
        if zeros < len(data):
            if parse_header(data[zeros // BLOCK * BLOCK :][:BLOCK]):
                return position
            # Garbage after the end can be ignored, unless it contains members.
            return position if find_header(reader, position, end) >= 0 else -1
    return -1
