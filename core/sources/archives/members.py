"""Members of archives as plain data, independent of the kind of archive."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import IO

from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.storage.ranges import RandomAccessFile
from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.image_ref import ImageRef, key_from_bytes
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


def most_unpacked(packed: int) -> int:
    """Returns the number of bytes to which an archive may unpack at most, by its own number of bytes."""
    return min(MAX_UNPACKED_BYTES, max(SMALL_BYTES, MAX_RATIO * packed))


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
        super().__init__(read_at, size)
        self._most = self._left = most

    def start_again(self) -> None:
        """Allows the whole number of bytes again."""
        self._left = self._most

    def read(self, size: int = -1) -> bytes:
        """Returns the next bytes; all that are left if `size` is negative.

        Raises:
          ValueError: If these are more bytes than may be read.
        """
        rest = max(self._size - self.tell(), 0)
        self._left -= min(size, rest) if size >= 0 else rest
        if self._left < 0:
            raise ValueError(f"its headers take more than {format_size(self._most)}")
        return bytes(super().read(size))


def member_ref(
    name: str,
    place: ByteRange,
    size: int,
    state: str,
    is_folder: bool = False,
    fault: tuple[str, str] | None = None,
) -> ImageRef | None:
    """Returns the reference to a member, with its path in the archive as key; None for a sound folder.

    The unsafe characters of an unsafe name become `%HH`, because such a name is only for display.

    Args:
      name: Name in the archive, with `/` between folders; undecodable bytes are surrogate escapes.
      place: Location of its bytes.
      size: Number of bytes when unpacked, from its header.
      state: Mark of its state, which stays the same when the archive is built again.
      is_folder: Whether it is a folder.
      fault: Quarantine reason and message of a member that cannot be used as an image; None if it can.
    """
    raw = name.encode("utf-8", "surrogateescape")
    key = key_from_bytes(raw)
    is_top = is_folder and not name  # such as the `./` of `tar -cf x.tar .`
    if not is_top and (why := why_unsafe(name)):
        fault = QuarantineReason.UNSAFE_MEMBER, why
        if len(raw) > MAX_NAME_LENGTH:
            key = key_from_bytes(raw[:200] + b"-" + hashlib.sha256(raw).hexdigest()[:16].encode())
        key = _UNSAFE.sub(lambda match: "".join(f"%{ord(letter):02X}" for letter in match[0]), key)
    ref = ImageRef(key, "", size=size, version=state, place=place.encode())
    if fault:
        return ref.quarantined(*fault)
    return None if is_folder else ref


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
    """Stores the references to all members of an archive in their order, in little memory."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, ref: ImageRef | None) -> None:
        """Appends a member; only counts a folder, which is None.

        Raises:
          ArchiveDamage: If the archive has too many members.
        """
        if self._count == MAX_MEMBERS:
            raise ArchiveDamage(
                QuarantineReason.TOO_LARGE,
                f"it has more than {MAX_MEMBERS} members; pack the rest into another archive",
            )
        self._count += 1
        if ref:
            self._file.write(json.dumps(ref).encode() + b"\n")

    def __iter__(self) -> Iterator[ImageRef]:
        """Yields all members but folders. Run one loop at a time, and add nothing during a loop."""
        self._file.seek(0)
        for line in self._file:
            UNDERWAY.progress()
            yield ImageRef(*json.loads(line))
