"""Members of archives as plain data, kept apart from where and how they are stored."""

from __future__ import annotations

import hashlib
import marshal
import re
import tempfile
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from shardwright.schemas.byte_range import STORED
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.image_ref import key_from_bytes

#: Members of one archive; what stands behind them is not listed.
MAX_MEMBERS = 5_000_000
#: Places at which one archive may be damaged before the rest of it is given up.
MAX_DAMAGES = 1000
#: Bytes of a member's name.
MAX_NAME_BYTES = 4096
#: Bytes that the members of an archive may unpack to, in all and for each of its own.
MAX_UNPACKED_BYTES = 16 * 10**12
MAX_RATIO = 200
#: Up to which the ratio does not matter.
SMALL_BYTES = 10**9
#: Members in memory before they are written to a temporary file, and that are written together.
_IN_MEMORY_BYTES = 16 << 20
_BATCH = 1000
_DRIVE = re.compile(r"[A-Za-z]:")


class Member(NamedTuple):
    """One entry of an archive.

    Attributes:
      name: as the archive says, `/` between folders; undecodable bytes are surrogate escapes.
      offset: where its bytes begin in the file, or the local header of a zip's member.
      length: of its bytes as they are stored.
      size: of its bytes when unpacked, as its header says; -1 when unknown.
      mark: what tells its state, and stays when the archive is built anew.
      method: how it is stored, as in `Place`.
      local_name: in the local header of a zip's member, else None.
      crc32: of the unpacked bytes; -1 when unknown.
      is_folder: whether it is nothing but a folder.
      fault: the quarantine reason of a member that cannot be an image of the dataset.
      message: one sentence about that.
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
        """Returns the member with its fault; the first one counts."""
        return self if self.fault else self._replace(fault=str(reason), message=message)


class ArchiveDamage(NamedTuple):
    """What is wrong with an archive itself.

    Attributes:
      reason: the quarantine reason.
      message: one sentence that says where.
      offset: the byte at which it shows, where there is more than one such place; else -1.
    """

    reason: str
    message: str
    offset: int = -1


def decode_name(raw: bytes) -> str:
    """Returns a name whose undecodable bytes can be told again."""
    return raw.decode("utf-8", "surrogateescape")


def encode_name(name: str) -> bytes:
    """Returns the bytes of a name; what no UTF-8 can hold is replaced."""
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return name.encode("utf-8", "replace")


def tidy_name(name: str) -> str:
    """Returns a name without the `./` and the doubled slashes that some programs write."""
    if "./" not in name and "//" not in name:
        return name
    parts = name.split("/")
    return "/".join(
        part for i, part in enumerate(parts) if part != "." and (part or i in (0, len(parts) - 1))
    )


def why_unsafe(name: str) -> str:
    """Returns what is wrong with a name that leads out of a folder it would be unpacked to, or nothing."""
    if not name:
        return "it has no name"
    if "\0" in name:
        return "its name holds a NUL"
    if len(name) > MAX_NAME_BYTES:
        return f"its name has more than {MAX_NAME_BYTES} bytes"
    if ".." not in name and ":" not in name and name[0] not in "/\\":
        return ""
    path = name.replace("\\", "/")
    if path.startswith("/"):
        return "its name is an absolute path"
    if _DRIVE.match(path):
        return "its name begins with a drive"
    return "its name leads out of the archive" if ".." in path.split("/") else ""


def member_key(name: str, unsafe: bool = False) -> str:
    """Returns a member's part of a key.

    An unsafe name is only shown: what makes it one is written as `%HH`, and a long one is cut.
    """
    raw = encode_name(name)
    if not unsafe:
        return key_from_bytes(raw)
    shown = (
        raw
        if len(raw) <= MAX_NAME_BYTES
        else raw[:200] + b"-" + hashlib.sha256(raw).hexdigest()[:16].encode()
    )
    key = key_from_bytes(shown).replace("\0", "%00").replace("\\", "%5C")
    parts = ["%2E%2E" if part == ".." else part for part in key.split("/")]
    if not parts[0] and len(parts) > 1:
        parts[:2] = ["%2F" + parts[1]]
    if _DRIVE.match(parts[0]):
        parts[0] = parts[0].replace(":", "%3A", 1)
    return "/".join(parts)


class MemberStore:
    """All members of an archive, in the order in which they stand, in little memory."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115
        self._batch: list[tuple[Any, ...]] = []

    def add(self, found: Member | ArchiveDamage) -> None:
        """Appends one."""
        if isinstance(found, ArchiveDamage):
            found = found._replace(reason=str(found.reason))  # marshal knows no enums
        self._batch.append(tuple(found))
        if len(self._batch) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._batch:
            packed = marshal.dumps(self._batch)
            self._file.write(len(packed).to_bytes(8, "little") + packed)
            self._batch = []

    def __iter__(self) -> Iterator[Member | ArchiveDamage]:
        """Yields all; one loop at a time, and none of them while something is added."""
        self._flush()
        self._file.seek(0)
        while length := int.from_bytes(self._file.read(8), "little"):
            batch = marshal.loads(self._file.read(length))
            for values in batch:
                yield Member._make(values) if len(values) == _FIELDS else ArchiveDamage._make(values)


_FIELDS = len(Member._fields)
