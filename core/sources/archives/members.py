"""Members of archives as plain data, independent of the kind of archive."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.storage.ranges import RandomAccessFile
from shardwright.schemas.byte_range import STORED
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.image_ref import key_from_bytes
from shardwright.schemas.units import format_size

#: Function of an offset and a number of bytes that reads a file, as `RangeReader.read_at` does.
ReadAt = Callable[[int, int], bytes]

#: Most members of one archive that are listed.
MAX_MEMBERS = 5_000_000
#: Longest name of a member.
MAX_NAME_LENGTH = 4096
#: Most bytes that all members of an archive may unpack to: in total, and per byte of the archive.
MAX_UNPACKED_BYTES = 16 * 10**12
MAX_RATIO = 200
#: Up to this many unpacked bytes, the ratio is not limited.
SMALL_BYTES = 10**9
#: Bytes of members kept in memory before a temporary file is used.
_IN_MEMORY_BYTES = 16 << 20
#: Files and folders that operating systems add to folders and archives.
_LEFT_BEHIND = frozenset(("__MACOSX", "Thumbs.db", "desktop.ini", "$RECYCLE.BIN"))
_DRIVE = re.compile(r"[A-Za-z]:")
#: What makes a name unsafe.
_UNSAFE = re.compile(r"(?:^|(?<=/))\.\.(?=/|$)|^/|(?<=^[A-Za-z]):|\\|\0")


class ArchiveDamage(Exception):
    """An archive cannot be read to its end.

    Attributes:
      reason: Quarantine reason.
      message: One sentence that says where the damage is, and what to do.
    """

    def __init__(self, reason: QuarantineReason, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class HeaderFile(RandomAccessFile):
    """A file for libraries that read headers, which may read a limited number of bytes.

    Headers can state any size, so a hostile archive could fill the memory.

    Args:
      read_at: Function that reads the file.
      size: Size of the file.
      most: Number of bytes that may be read until `start_again` is called.
    """

    def __init__(self, read_at: ReadAt, size: int, most: int) -> None:
        super().__init__(self._read_limited, size)
        self._read_any, self._end, self._most = read_at, size, most
        self.start_again()

    def start_again(self) -> None:
        """Allows the whole number of bytes again."""
        self._left = self._most

    def _read_limited(self, offset: int, length: int) -> bytes:
        length = max(min(length, self._end - offset), 0)
        self._left -= length
        if self._left < 0:
            raise ValueError(f"its headers take more than {format_size(self._most)}")
        return self._read_any(offset, length)


class Member(NamedTuple):
    """One entry of an archive.

    Attributes:
      name: Name in the archive, with `/` between folders; undecodable bytes are surrogate escapes.
      offset: Position of its bytes in the file; for a zip, position of its local header.
      length: Number of bytes as stored.
      size: Number of bytes when unpacked, from its header.
      mark: Mark of its state, which stays the same when the archive is built again.
      method: Storage method, as in `ByteRange`.
      local_name: Name in the local header of a zip's member, else None.
      crc32: CRC-32 of the unpacked bytes; -1 if unknown.
      is_folder: Whether it is a folder.
      fault: Quarantine reason of a member that cannot be used as an image; empty if there is none.
      message: One sentence about the fault.
    """

    name: str
    offset: int
    length: int
    size: int
    mark: str = ""
    method: str = STORED
    local_name: str | None = None
    crc32: int = -1
    is_folder: bool = False
    fault: str = ""
    message: str = ""

    def at_fault(self, reason: QuarantineReason, message: str) -> Member:
        """Returns the member marked with a fault; an earlier fault is kept."""
        return self if self.fault else self._replace(fault=str(reason), message=message)

    @property
    def key(self) -> str:
        """Its part of a key. An unsafe name is for display only: its unsafe characters become `%HH`."""
        raw = self.name.encode("utf-8", "surrogateescape")
        if self.fault != QuarantineReason.UNSAFE_MEMBER:
            return key_from_bytes(raw)
        if len(raw) > MAX_NAME_LENGTH:
            raw = raw[:200] + b"-" + hashlib.sha256(raw).hexdigest()[:16].encode()
        return _UNSAFE.sub(
            lambda match: "".join(f"%{ord(letter):02X}" for letter in match[0]), key_from_bytes(raw)
        )


def tidy_name(name: str) -> str:
    """Returns a name without the `./` and the doubled slashes that some programs write."""
    if "./" not in name and "//" not in name:
        return name
    parts = name.split("/")
    return "/".join(
        part for i, part in enumerate(parts) if part != "." and (part or i in (0, len(parts) - 1))
    )


def is_left_out(path: str) -> bool:
    """Returns whether a member has a hidden name, or is of an operating system and not of the user."""
    return any(part.startswith(".") or part in _LEFT_BEHIND for part in path.split("/"))


def why_unsafe(name: str) -> str:
    """Returns why a name is unsafe to unpack, such as a path out of the folder; empty if it is safe."""
    path = name.replace("\\", "/")
    reasons = {
        "it has no name": not name,
        "its name holds a NUL": "\0" in name,
        f"its name has more than {MAX_NAME_LENGTH} characters": len(name) > MAX_NAME_LENGTH,
        "its name is an absolute path": path.startswith("/"),
        "its name begins with a drive": bool(_DRIVE.match(path)),
        "its path leads out of the archive": ".." in path.split("/"),
    }
    return next((why for why, is_so in reasons.items() if is_so), "")


class MemberStore:
    """Stores all members of an archive in their order, in little memory."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, member: Member) -> None:
        """Appends a member.

        Raises:
          ArchiveDamage: If the archive has too many members.
        """
        if self._count == MAX_MEMBERS:
            raise ArchiveDamage(
                QuarantineReason.TOO_LARGE,
                f"it has more than {MAX_MEMBERS} members; pack the rest into another archive",
            )
        self._count += 1
        self._file.write(json.dumps(member).encode() + b"\n")

    def __iter__(self) -> Iterator[Member]:
        """Yields all members. Run one loop at a time, and add nothing during a loop."""
        self._file.seek(0)
        for line in self._file:
            UNDERWAY.progress()
            yield Member(*json.loads(line))
