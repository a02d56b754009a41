"""Lists the members of tars, with `tarfile`."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator

from shardwright.core.sources.archives.members import (
    MAX_MEMBERS,
    ArchiveDamage,
    HeaderFile,
    Member,
    ReadAt,
    check_count,
    tidy_name,
)
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import words_of

BLOCK = tarfile.BLOCKSIZE
#: Most bytes of all headers of one member; no valid name needs more.
_MAX_HEADER_BYTES = 1 << 20
#: Most global headers, which apply to all members after them.
_MAX_GLOBAL_HEADERS = 1000
#: Most zero bytes to skip after the end mark in search of more members, and those read at once.
_MAX_ZEROS, _STEP = 256 << 20, 1 << 20
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
_FAULTS = (tarfile.TarError, ValueError, IndexError, OverflowError, RecursionError)


def is_tar_head(head: bytes) -> bool:
    """Returns whether a file's first bytes are a header of a tar, or the end mark of an empty one."""
    if not any(head[: 2 * BLOCK]):
        return len(head) >= 2 * BLOCK
    try:
        tarfile.TarInfo.frombuf(head[:BLOCK], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def list_tar(read_at: ReadAt, end: int, state: str = "") -> Iterator[Member]:
    """Yields the members of a tar in their order, and those of tars that are joined to it.

    Args:
      read_at: Function that reads the file.
      end: Size of the file.
      state: State of the archive, which marks members whose headers have no time.

    Raises:
      ArchiveDamage: After the members before the damage.
    """
    file = HeaderFile(read_at, end, _MAX_HEADER_BYTES)
    position = count = 0
    while True:
        try:
            file.seek(position)
            tar = tarfile.TarFile(fileobj=file, encoding="utf-8", errors="surrogateescape")
            while position <= end and (info := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # tarfile remembers all members
                file.start_again()
                position = tar.offset
                if min(info.size, position - info.offset_data) < 0:
                    raise tarfile.ReadError("a size is negative")
                if len(tar.pax_headers) > _MAX_GLOBAL_HEADERS:
                    raise tarfile.ReadError("it has too many global headers")
                if info.type == _VOLUME_LABEL:
                    continue
                count += 1
                check_count(count, MAX_MEMBERS)
                member = _member(info, state)
                if position > end and member.offset + member.length > end:
                    member = member.at_fault(
                        QuarantineReason.TRUNCATED,
                        f"the archive ends after {max(0, end - member.offset)} of its {member.length} bytes",
                    )
                yield member
        except _FAULTS as error:
            raise ArchiveDamage(
                QuarantineReason.CORRUPT,
                f"its headers cannot be read from byte {position} on ({words_of(error)}), so later members "
                "are missing; copy or pack it again",
            ) from None
        position = _after_end_mark(read_at, position, end)
        if position == end:
            return


def _member(info: tarfile.TarInfo, state: str) -> Member:
    member = Member(
        name=tidy_name(info.name),
        offset=info.offset_data,
        length=info.size,
        size=info.size,
        mark=str(int(info.mtime)) if _NO_TIME < info.mtime < _LATEST_TIME else state,
        is_folder=info.isdir() or info.type == _DUMPED_FOLDER or (info.isreg() and info.name.endswith("/")),
    )
    if info.issparse():
        return member.at_fault(QuarantineReason.UNSAFE_MEMBER, "it is a sparse file")
    if info.type in _UNSAFE_TYPES:
        return member.at_fault(QuarantineReason.UNSAFE_MEMBER, _UNSAFE_TYPES[info.type])
    return member


def _after_end_mark(read_at: ReadAt, position: int, end: int) -> int:
    """Returns the position of the first block after the zeros of an end mark, or the end of the file.

    Raises:
      ArchiveDamage: If there is no end mark.
    """
    block = read_at(position, BLOCK)
    if len(block) < BLOCK and (any(block) or not block):
        raise ArchiveDamage(
            QuarantineReason.TRUNCATED,
            "it ends without an end mark, so members may be missing; copy or download it again",
        )
    begin, limit = position, min(end, position + _MAX_ZEROS)
    while position < limit:
        data = read_at(position, min(_STEP, limit - position))
        zeros = len(data) - len(data.lstrip(b"\0"))
        position += zeros
        if zeros < len(data):
            position -= (position - begin) % BLOCK
            break
    if begin == position < end or position == limit < end:
        raise ArchiveDamage(
            QuarantineReason.CORRUPT,
            f"at byte {position} there is no header of a member, so later members are missing; copy or pack "
            "it again",
        )
    return position
