"""Finds and opens archives, and makes references to their members."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from shardwright.schemas.byte_range import ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.image_ref import NO_SPLIT, ImageRef, key_from_bytes
from shardwright.transforms import storage
from shardwright.transforms.images.signatures import is_image_name
from shardwright.transforms.sources.archives.compressed import COMPRESSED, unpack_tar
from shardwright.transforms.sources.archives.kinds import ZIP, extension_kind, kind_of_archive
from shardwright.transforms.sources.archives.members import (
    ArchiveDamage,
    Member,
    MemberStore,
    member_key,
    why_unsafe,
)
from shardwright.transforms.sources.archives.tars import list_tar
from shardwright.transforms.sources.archives.zips import list_zip
from shardwright.transforms.sources.folder_tree import split_of_folder
from shardwright.transforms.sources.folder_walk import walk
from shardwright.transforms.sources.hashing import name_hash
from shardwright.transforms.sources.source import Context, Input, InputSplit
from shardwright.transforms.storage.ranges import RangeReader, open_ranges

_SPOOL_FORMAT = "unpacked tar 2"
_FORBIDDEN = (errno.EACCES, errno.EPERM)
#: Most top folders of an input that are passed on, besides those named like splits.
_MAX_TOPS = 12


class ArchiveFile(NamedTuple):
    """An archive as it was listed; `InputSplit.detail` carries it.

    Attributes:
      key: Path below the input.
      size: Size in bytes.
      version: Mark of the file's state.
      tops: Folders at the top of the input that hold archives or images; empty if the input is the
        archive.
    """

    key: str
    size: int
    version: str
    tops: tuple[str, ...] = ()

    @property
    def above(self) -> tuple[str, ...]:
        """Folders below the input that contain the archive."""
        return tuple(self.key.split("/")[:-1])


def archive_of(part: InputSplit) -> ArchiveFile | None:
    """Returns the archive of an input split; None for the split of the files beside archives."""
    if not part.detail:
        return None
    key, size, version, tops = json.loads(part.detail)
    return ArchiveFile(key, size, version, tuple(tops))


def split_archives(item: Input, context: Context) -> Iterator[InputSplit]:
    """Yields one input split for each archive, and one for the files beside the archives.

    Raises:
      EngineError: if a folder cannot be listed.
    """
    found = None if not storage.is_remote(item.path) and os.path.isdir(item.path) else storage.stat(item.path)
    if found is not None:
        name = key_from_bytes(os.fsencode(item.path.rpartition("/")[2]))
        yield _part(item, item.path, ArchiveFile(name, found.size, found.version))
        return
    archives, others = [], False
    tops: set[str] = set()
    for path, key, size, version in _files(item.path):
        top, slash, _ = key.partition("/")
        is_archive = is_listed_archive(key, size)
        holds = slash and (is_archive or is_image_name(key))
        if holds and (len(tops) < _MAX_TOPS or split_of_folder(top)) and not _is_hidden(key):
            tops.add(top)
        if is_archive:
            archives.append((path, ArchiveFile(key, size, version)))
        else:
            others = True
    for path, archive in archives:
        yield _part(item, path, archive._replace(tops=tuple(sorted(tops))))
    if others:
        yield InputSplit(item, item.path)


def _is_hidden(key: str) -> bool:
    return any(part.startswith(".") for part in key.split("/"))


def is_listed_archive(key: str, size: int) -> bool:
    """Returns whether a file in a folder is listed as an archive, judged by its name."""
    return size >= 0 and bool(extension_kind(key.rpartition("/")[2])) and not _is_hidden(key)


def _part(item: Input, path: str, archive: ArchiveFile) -> InputSplit:
    return InputSplit(item, path, detail=json.dumps(archive))


def _files(folder: str) -> Iterator[tuple[str, str, int, str]]:
    """Yields (path, key, size, version) for all entries below a folder.

    On a disk, entries that are not files or not named like archives have size -1, because asking for their
    states takes half of the time of the search.
    """
    if storage.is_remote(folder):
        base = folder.rstrip("/") + "/"
        for item in storage.list_objects(base):
            relative = item.path.removeprefix(base).encode("utf-8", "surrogateescape")
            yield item.path, key_from_bytes(relative), item.size, item.version
        return
    for path, relative, entry in walk(os.fsencode(folder)):
        key, size, version = key_from_bytes(relative), -1, ""
        if extension_kind(key.rpartition("/")[2]):
            with contextlib.suppress(OSError):
                status = entry.stat()
                if stat.S_ISREG(status.st_mode):
                    size, version = status.st_size, storage.local_version(status)
        yield os.fsdecode(path), key, size, version


@dataclass
class OpenArchive:
    """An open archive whose members are listed.

    Attributes:
      part: Input split that is listed.
      archive: The archive as it was listed.
      kind: Kind of archive, detected from its bytes.
      reader: Reader of the file that holds the members.
      file: Spool file with the unpacked tar; empty if the archive is not compressed.
      members: All members, up to the damage if there is any.
      damage: Why later members are missing; None if there is no damage.
    """

    part: InputSplit
    archive: ArchiveFile
    kind: str
    reader: RangeReader
    file: str = ""
    members: MemberStore = field(default_factory=MemberStore)
    damage: ArchiveDamage | None = None

    def place(self, member: Member) -> ByteRange:
        """Returns the location of a member's bytes."""
        return ByteRange(
            file=self.file,
            offset=member.offset,
            length=member.length,
            method=member.method,
            file_size=self.reader.size,
            # Another run may write the spool file again, with the same content.
            file_version="" if self.file else self.archive.version,
            name=member.local_name,
            crc32=member.crc32,
        )

    def entries(self) -> Iterator[tuple[ImageRef, Member | None]]:
        """Yields a reference for each member that is not a folder, in order, still without its class.

        A member that is unsafe, damaged or a duplicate is already quarantined. Damage of the archive
        itself gives a quarantined reference without a member.
        """
        names = UniqueNames()
        for member in self.members:
            if not member.is_folder or member.fault:
                names.add(member_key(member.name, unsafe=_is_unsafe(member)))
        names.settle(
            member_key(member.name) for member in self.members if not member.is_folder and not member.fault
        )
        for member in self.members:
            if not member.is_folder or member.fault:
                yield self._member_ref(member, names), member
        if self.damage:
            yield damaged_archive(self.part, self.archive, self.damage), None

    def _member_ref(self, member: Member, names: UniqueNames) -> ImageRef:
        key = member_key(member.name, unsafe=_is_unsafe(member))
        if member.fault:
            key = names.spare(key)
        else:
            which, total = names.place(key)
            # Appending to a tar replaces members. In a zip, nothing says which member is valid.
            if which != (total if self.kind != ZIP else 1):
                replaced = "a later member replaces it" if self.kind != ZIP else "the first one is used"
                member = member.at_fault(
                    QuarantineReason.CORRUPT, f"its name occurs {total} times in the archive; {replaced}"
                )
                key = names.other(key)
        ref = ImageRef(
            key=f"{self.part.item.prefix}{self.archive.key}!{key}",
            uri=self.part.path,
            size=member.size,
            version=member.mark,
            place=self.place(member).encode(),
        )
        return ref.quarantined(member.fault, member.message) if member.fault else ref


def _is_unsafe(member: Member) -> bool:
    return member.fault == QuarantineReason.UNSAFE_MEMBER


def damaged_archive(part: InputSplit, archive: ArchiveFile, damage: ArchiveDamage) -> ImageRef:
    """Returns the reference that records a fault of the archive itself."""
    ref = ImageRef(
        key=part.item.prefix + archive.key,
        uri=part.path,
        split=NO_SPLIT,
        size=archive.size,
        version=archive.version,
    )
    return ref.quarantined(damage.reason, damage.message)


@contextlib.contextmanager
def open_archive(
    part: InputSplit, archive: ArchiveFile, context: Context
) -> Iterator[OpenArchive | ArchiveDamage]:
    """Opens an archive and lists its members; yields the damage if there is no member before it.

    Raises:
      EngineError: if the archive changed since it was listed, or the storage failed, also inside the block.
    """
    with storage.translated_errors("read", part.path), contextlib.ExitStack() as stack:
        try:
            opened: OpenArchive | ArchiveDamage
            try:
                opened = _open(part, archive, context, stack)
            except OSError as error:
                if error.errno not in _FORBIDDEN:
                    raise
                opened = ArchiveDamage(QuarantineReason.UNREADABLE, (error.strerror or str(error)).lower())
            except ArchiveDamage as damage:
                opened = damage
            yield opened  # the caller reads the members while the archive is open
        except FileNotFoundError:
            raise storage.changed(part.path) from None


def _open(
    part: InputSplit, archive: ArchiveFile, context: Context, stack: contextlib.ExitStack
) -> OpenArchive:
    if not archive.size:
        raise ArchiveDamage(QuarantineReason.EMPTY_FILE, "the archive has no bytes")
    reader = stack.enter_context(RangeReader(part.path, archive.size, archive.version))
    kind = kind_of_archive(reader, archive.key)
    if not kind:
        raise ArchiveDamage(
            QuarantineReason.CORRUPT,
            "its name says archive, but its bytes are not an archive; copy or pack it again",
        )
    opened = OpenArchive(part, archive, kind, reader)
    state = f"{archive.size}:{archive.version}"
    if kind in COMPRESSED:
        identity = "\0".join((part.path, state, _SPOOL_FORMAT))
        opened.file = context.spool.fill(identity, part.path, lambda out: unpack_tar(reader, kind, out))
        reader.check_unchanged()
        opened.reader = stack.enter_context(open_ranges(opened.file))
    listed = list_zip(reader) if kind == ZIP else list_tar(opened.reader.read_at, opened.reader.size, state)
    try:
        for member in listed:
            opened.members.add(_checked(member))
    except ArchiveDamage as damage:
        opened.damage = damage
    reader.check_unchanged()
    if opened.damage and not opened.members:
        raise opened.damage
    return opened


def _checked(member: Member) -> Member:
    """Returns the member, marked as faulty if its name is unsafe."""
    is_top = member.is_folder and not member.name  # such as the `./` of `tar -cf x.tar .`
    if not is_top and (problem := why_unsafe(member.name)):
        return member._replace(fault=QuarantineReason.UNSAFE_MEMBER.value, message=problem)
    return member


class UniqueNames:
    """Gives each entry of an archive a unique name.

    First `add` all names. Then `settle` examines the names that may be duplicates, so only these are
    kept in memory.
    """

    def __init__(self) -> None:
        self._hashes = array("Q")
        self._sorted = np.empty(0, np.uint64)
        self._twice: frozenset[int] = frozenset()
        self._count: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._given: set[str] = set()
        self._number: dict[str, int] = {}

    def add(self, name: str) -> None:
        """Adds the name of an entry."""
        self._hashes.append(name_hash(name))

    def settle(self, sound: Iterable[str]) -> None:
        """Finds out which names are duplicates.

        Args:
          sound: Names of all entries without other faults, which may keep their names.
        """
        self._sorted = np.sort(np.frombuffer(self._hashes, np.uint64))
        self._twice = frozenset(self._sorted[1:][self._sorted[1:] == self._sorted[:-1]].tolist())
        if self._twice:
            self._count.update(name for name in sound if name_hash(name) in self._twice)

    def place(self, name: str) -> tuple[int, int]:
        """Returns (number, total) of an entry among the sound entries with its name.

        The number begins at 1 and increases with each call.
        """
        total = self._count.get(name, 1)
        if total == 1:
            return 1, 1
        self._seen[name] += 1
        return self._seen[name], total

    def spare(self, name: str) -> str:
        """Returns a name for an entry that is not sound: its own name if no other entry has it."""
        return self.other(name) if name_hash(name) in self._twice else name

    def other(self, name: str) -> str:
        """Returns a similar name that no other entry has."""
        number = self._number.get(name, 2)
        while self._is_taken(candidate := f"{name}#{number}"):
            number += 1
        self._number[name] = number + 1
        self._given.add(candidate)
        return candidate

    def _is_taken(self, name: str) -> bool:
        wanted = np.uint64(name_hash(name))
        found = int(np.searchsorted(self._sorted, wanted))
        same = found < len(self._sorted) and self._sorted[found] == wanted
        return bool(same) or name in self._given
