"""Finds, recognizes and opens archives, and makes references to their members. A name is only a hint."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
import tempfile
import zlib
from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import count, islice
from typing import IO, Any, NamedTuple

import zstandard

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.images.byte_ranges import read_part
from shardwright.core.images.faults import unread
from shardwright.core.images.signatures import claims_to_be_image, could_be_image, is_image_name
from shardwright.core.sources.annotation_files import MAX_BYTES, AnnotationFault
from shardwright.core.sources.archives.members import (
    END_SIGN,
    MAX_END_BYTES,
    ReadAt,
    is_left_out,
    is_tar_head,
    list_tar,
    list_zip,
    most_unpacked,
)
from shardwright.core.sources.containers import first_containers, keeps_splits, of_splits, state_of
from shardwright.core.sources.file_states import name_hash
from shardwright.core.sources.folder_tree import AUTO, split_of_folder
from shardwright.core.sources.image_files import files_below, is_hidden, key_of, splits_of_files
from shardwright.core.sources.input_probe import HEAD_BYTES, InputProbe
from shardwright.core.sources.source import Context, Input, InputPart
from shardwright.core.storage.ranges import RandomAccessFile, RangeReader, open_ranges
from shardwright.core.storage.store import StoredObject
from shardwright.schemas.byte_range import ByteRange, decode_place
from shardwright.schemas.codes import FilterReason, QuarantineReason
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import ImageFault, UsageError, words_of
from shardwright.schemas.image_ref import NO_SPLIT, ImageRef
from shardwright.schemas.units import format_size

ZIP, TAR = "zip", "tar"
GZIP, BZIP2, XZ, ZSTD = "gzip", "bzip2", "xz", "zstd"
#: Kinds that hold a compressed tar, which must be unpacked before its members can be read.
COMPRESSED = (GZIP, BZIP2, XZ, ZSTD)
#: Most unpacked bytes at once.
_PIECE = 1 << 20
#: Packed bytes that are read at once.
_BITE = 1 << 16
#: Memory limits for decoders: enough for `xz -9` and `zstd --ultra`.
_MAX_XZ_BYTES, _MAX_ZSTD_WINDOW = 256 << 20, 128 << 20
#: What decoders raise for damaged data.
_PACKED_FAULTS = (zlib.error, OSError, EOFError, ValueError, lzma.LZMAError, zstandard.ZstdError, MemoryError)
#: Kind -> extensions of its files, and their first bytes.
_KINDS: Mapping[str, tuple[tuple[str, ...], tuple[bytes, ...]]] = {
    ZIP: ((".zip",), (b"PK\3\4", END_SIGN)),
    TAR: ((".tar",), ()),
    GZIP: ((".tar.gz", ".tgz"), (b"\x1f\x8b\x08",)),
    BZIP2: ((".tar.bz2", ".tbz2", ".tbz"), (b"BZh",)),
    XZ: ((".tar.xz", ".txz"), (b"\xfd7zXZ\0",)),
    # pzstd begins with a skippable frame.
    ZSTD: ((".tar.zst", ".tzst", ".tar.zstd"), (b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18")),
}
#: Other extensions of archives; such members are reported as nested archives.
_OTHERS = (
    ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar", ".lzma", ".z", ".cab", ".iso", ".jar", ".lz4", ".arj", ".lzh"
)  # fmt: skip
_OTHER_MAGIC = (b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07")
#: Most members of one archive that are listed.
MAX_MEMBERS = 5_000_000
#: Bytes of members kept in memory before a temporary file is used.
_IN_MEMORY_BYTES = 16 << 20
#: Members that show what an archive holds, and the bytes in which they are searched if it is compressed.
_FIRST_MEMBERS, _PACKED_BYTES, _UNPACKED_BYTES = 12, 4 << 20, 16 << 20


def extension_kind(name: str) -> str:
    """Returns the kind that a file's extension names; empty if it is not a supported archive."""
    lower = name.lower()
    return next((kind for kind, (extensions, _) in _KINDS.items() if lower.endswith(extensions)), "")


def kind_of_head(head: bytes) -> str:
    """Returns the kind of archive, or the compression, that a file's first bytes show; empty for another."""
    by_magic = next((kind for kind, (_, magic) in _KINDS.items() if head.startswith(magic)), "")
    return by_magic or (TAR if is_tar_head(head) else "")


def is_archive_head(head: bytes) -> bool:
    """Returns whether a file's first bytes are those of an archive of any kind."""
    return head.startswith(_OTHER_MAGIC) or bool(kind_of_head(head))


def kind_of_archive(reader: RangeReader, name: str) -> str:
    """Returns the kind of an archive, detected from its bytes; empty if it is not an archive.

    Args:
      reader: Reader of the file.
      name: File name, which decides if damage leaves no other sign.
    """
    head = reader.read_at(0, HEAD_BYTES)
    kind = kind_of_head(head)
    if kind in COMPRESSED and extension_kind(name) != kind:
        return kind if is_tar_head(unpack_head(head, kind, HEAD_BYTES)) else ""
    if kind:
        return kind
    # A program may precede a zip.
    tail = reader.read_at(max(0, reader.size - MAX_END_BYTES), MAX_END_BYTES)
    return ZIP if END_SIGN in tail and extension_kind(name) in ("", ZIP) else ""


def _unpack(packed: Any, kind: str) -> Iterator[bytes]:
    """Yields the unpacked data of a compressed file in pieces; joined streams follow each other."""
    if kind == XZ:
        yield from _unpack_xz(packed)
        return
    decoder = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW)
    zstd = partial(decoder.stream_reader, read_across_frames=True)
    openers: dict[str, Callable[[Any], Any]] = {GZIP: gzip.open, BZIP2: bz2.open, ZSTD: zstd}
    with openers[kind](packed) as file:
        yield from iter(lambda: file.read1(_PIECE), b"")


def _unpack_xz(packed: IO[bytes]) -> Iterator[bytes]:
    """Yields unpacked data like `lzma.LZMAFile`, which has no limit for the memory of its decoder."""
    data = packed.read(_BITE)
    while data:
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_XZ_BYTES)
        while not decoder.eof:
            if decoder.needs_input and not (data := data or packed.read(_BITE)):
                raise EOFError("the xz data ends early")
            yield decoder.decompress(data, _PIECE)
            data = b""
        # Zeros may stand between joined streams, and after the last one.
        data = decoder.unused_data.lstrip(b"\0")
        while not data and (padding := packed.read(_BITE)):
            data = padding.lstrip(b"\0")


def unpack_head(head: bytes, kind: str, limit: int) -> bytes:
    """Returns the unpacked data of a compressed file's first bytes, as much as can be unpacked."""
    data = bytearray()
    # A head ends early, and reading the file later reports other damage.
    with contextlib.suppress(*_PACKED_FAULTS):
        for piece in _unpack(io.BytesIO(head), kind):
            data += piece
            if len(data) >= limit:
                break
    return bytes(data[:limit])


def unpack_tar(packed_file: RandomAccessFile, kind: str, out: IO[bytes]) -> None:
    """Writes the unpacked data of a compressed file.

    Args:
      packed_file: The compressed file.
      kind: Kind of compression.
      out: Spool file.

    Raises:
      ImageFault: If the data is damaged, or unpacks to more than the limit.
      EngineError: If the file changed while it was read.
      OSError: If the file cannot be read, or the spool file cannot be written.
    """
    packed, length = io.BufferedReader(packed_file, _BITE), 0
    try:
        for piece in _unpack(packed, kind):
            length += len(piece)
            most = most_unpacked(packed.tell())
            if length > most:
                raise unread(
                    QuarantineReason.TOO_LARGE,
                    f"its first {format_size(packed.tell())} unpack to more than {format_size(most)}; "
                    "pack its images into a plain tar",
                )
            out.write(piece)
            UNDERWAY.progress()
    except EOFError:
        message = f"its {kind} data ends early; copy or download it again"
        raise unread(QuarantineReason.TRUNCATED, message) from None
    except _PACKED_FAULTS as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        message = f"its {kind} data is damaged ({words_of(error)}); copy or pack it again"
        raise unread(QuarantineReason.CORRUPT, message) from error


def first_members(read_at: ReadAt, size: int) -> list[ImageRef]:
    """Returns the files among the first members of a tar, up to the first damage; none of another file.

    Of a compressed tar, only its beginning is read.

    Args:
      read_at: Function that reads the file.
      size: Size of the file.
    """
    kind = kind_of_head(read_at(0, HEAD_BYTES))
    if kind in COMPRESSED:
        data = unpack_head(read_at(0, _PACKED_BYTES), kind, _UNPACKED_BYTES)
        read_at, size = (lambda offset, length: data[offset : offset + length]), len(data)
    members: list[ImageRef] = []
    with contextlib.suppress(ImageFault):  # also where the unpacked data ends
        members.extend(filter(None, islice(list_tar(read_at, ByteRange("", 0, size)), _FIRST_MEMBERS)))
    return members


def checked_kind(probe: InputProbe) -> str:
    """Returns the kind of an archive; empty for a folder of archives.

    Raises:
      UsageError: If the input is neither.
    """
    kind = kind_of_archive(open_ranges(probe.path), probe.name) if probe.is_file else ""
    if not kind and not first_archive(probe):
        raise UsageError(
            f"--input {probe.path} is neither an archive nor a folder of archives (zip, tar, "
            "tar.gz, tar.bz2, tar.xz, tar.zst); check the path."
        )
    return kind


def first_archive(probe: InputProbe) -> str:
    """Returns the path of the first archive in a folder of archives; empty if the folder is not one.

    A folder of archives has no image beside the first archives found on the way down, and fewer
    images than archives in their folders.
    """
    archives = first_containers(probe, extension_kind, claims_to_be_image)
    return archives[0] if archives and probe.images_below <= len(archives) else ""


_SPOOL_FORMAT = "unpacked tar 2"
#: Most top folders of an input that are passed on, besides those named like splits.
_MAX_TOPS = 12


class ArchiveFile(NamedTuple):
    """An archive as it was listed, which is `InputPart.detail`.

    Attributes:
      key: Path below the input.
      state: State of the file.
      tops: Folders at the top of the input that hold archives or images; empty if the input is the
        archive.
      split: Split from its name or folders, for members whose own folders give none.
    """

    key: str
    state: StoredObject
    tops: tuple[str, ...] = ()
    split: str = ""


def archive_parts(item: Input, context: Context, by_folder: bool = False) -> Iterator[InputPart]:
    """Yields one part for each archive, and one for the files beside the archives.

    Args:
      item: The input.
      context: Settings.
      by_folder: Whether the names of folders, which may be classes, give archives their splits too.

    Raises:
      EngineError: If a folder cannot be listed.
      UsageError: If the file does not exist any more.
    """
    if item.is_file:
        name = key_of(item.path.rpartition("/")[2])
        yield InputPart(item, item.path, ArchiveFile(name, state_of(item.path)))
        return
    archives, tops, others = [], set[str](), False
    for relative, state in files_below(item.path):
        key = key_of(relative)
        is_archive = is_listed_archive(key, state.size)
        top, slash, _ = key.partition("/")
        holds = slash and (is_archive or is_image_name(key)) and not is_hidden(key)
        if holds and (len(tops) < _MAX_TOPS or split_of_folder(top)):
            tops.add(top)
        if is_archive:
            archives.append(ArchiveFile(key, state))
        else:
            others = True
    splits = _splits_of((archive.key for archive in archives), context.settings, by_folder)
    for archive in archives:
        detail = archive._replace(tops=tuple(sorted(tops)), split=splits.get(archive.key, ""))
        yield InputPart(item, archive.state.path, detail)
    if others:
        yield InputPart(item, item.path)


def _splits_of(keys: Iterable[str], settings: ConvertSettings, by_folder: bool) -> Mapping[str, str]:
    """Returns archive -> split from its name and, if asked, its folders, unless settings say otherwise."""
    if not keeps_splits(settings) or settings.folders != AUTO or settings.label_regex:
        return {}
    names = {key: key if by_folder else key.rpartition("/")[2] for key in keys}
    splits = splits_of_files(names.values())
    return {key: splits[name] for key, name in names.items()}


def describe_splits(probe: InputProbe, settings: ConvertSettings, by_folder: bool = False) -> str:
    """Returns the splits of the archives in a folder, for messages."""
    keys = (key_of(name) for name, state in files_below(probe.path) if is_listed_archive(name, state.size))
    return of_splits(_splits_of(keys, settings, by_folder).values())


def is_listed_archive(key: str, size: int) -> bool:
    """Returns whether a file in a folder is listed as an archive, judged by its name."""
    return size >= 0 and bool(extension_kind(key)) and not is_hidden(key)


class OpenArchive:
    """An archive whose members are listed. Their references are stored in little memory.

    Attributes:
      part: Input split that is listed.
      archive: The archive as it was listed.
      kind: Kind of archive, detected from its bytes.
      file: Spool file with the unpacked tar; empty if the archive is not compressed.
      damage: Why all or later members are missing; None if there is no damage.
    """

    def __init__(self, part: InputPart) -> None:
        self.part = part
        self.archive: ArchiveFile = part.detail
        self.kind = self.file = ""
        self.damage: ImageFault | None = None
        self.count = 0
        self._members: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115
        #: Hash of a name -> index of the member that has it; others with the same name get other keys.
        self._sound: dict[int, int] = {}
        self._faulty: dict[int, int] = {}

    @property
    def last_counts(self) -> bool:
        """Whether the last one of several members with a name replaces the others, as in a tar.

        In a zip, nothing says which one is valid, so the first one is used.
        """
        return self.kind != ZIP

    def add(self, ref: ImageRef) -> None:
        """Appends a member that is not a folder."""
        digest = name_hash(ref.key)
        if not ref.is_candidate:
            self._faulty.setdefault(digest, self.count)
        elif self.last_counts or digest not in self._sound:
            self._sound[digest] = self.count
        self._members.write(json.dumps(ref).encode() + b"\n")
        self.count += 1

    def members(self) -> Iterator[ImageRef]:
        """Yields all members but folders, up to the damage if there is any. Run one loop at a time."""
        self._members.seek(0)
        for line in UNDERWAY.passing(self._members):
            yield ImageRef(*json.loads(line))

    def read_metadata(self, member: ImageRef, name: str) -> bytes:
        """Returns the content of a member with the metadata of an image.

        Args:
          member: The member.
          name: Extension of its name.

        Raises:
          AnnotationFault: If it is damaged or too large.
        """
        if member.size > MAX_BYTES:
            raise AnnotationFault(f"its .{name} is too large")
        try:
            return read_part(self.part.path, decode_place(member.place), member.size, MAX_BYTES)
        except ImageFault as fault:
            raise AnnotationFault(f"its .{name}: {fault.message}") from None

    def entries(self) -> Iterator[tuple[str, ImageRef]]:
        """Yields the path in the archive and the reference of each member, in order.

        References have no class yet. A member that is unsafe, damaged or a duplicate is quarantined. Damage
        of the archive itself gives a quarantined reference without a path.
        """
        which = "a later member replaces it" if self.last_counts else "the first one is used"
        archive_key = self.part.item.prefix + self.archive.key
        owners = ChainMap[int, int]({}, self._sound, self._faulty)
        suffixes: Counter[str] = Counter()  # path -> last number that was appended to it
        for index, ref in enumerate(self.members()):
            path = key = ref.key
            if owners[name_hash(path)] != index:
                if ref.is_candidate:
                    message = f"another member of the archive has its name; {which}"
                    ref = ref.quarantined(QuarantineReason.CORRUPT, message)
                suffixes[path] = next(
                    suffix
                    for suffix in count(max(2, suffixes[path] + 1))
                    if name_hash(f"{path}#{suffix}") not in owners
                )
                key = f"{path}#{suffixes[path]}"
                owners[name_hash(key)] = index
            yield path, ref._replace(key=f"{archive_key}!{key}", uri=self.part.path, split=self.archive.split)
        if self.damage:
            _, size, version, *_ = self.archive.state
            ref = ImageRef(archive_key, self.part.path, split=NO_SPLIT, size=size, version=version)
            yield "", ref.quarantined(self.damage.reason, self.damage.message)


def why_filtered(path: str) -> str:
    """Returns the reason to leave a member out by its name; empty if there is none."""
    name = path.rpartition("/")[2]
    if is_left_out(path):
        return FilterReason.DOTFILE
    if claims_to_be_image(name):
        return ""
    if extension_kind(name) or name.lower().endswith(_OTHERS):
        return FilterReason.NESTED_ARCHIVE
    return FilterReason.NOT_AN_IMAGE if not could_be_image(name) else ""


@contextlib.contextmanager
def open_archive(part: InputPart, context: Context) -> Iterator[OpenArchive]:
    """Opens an archive and lists its members, up to the damage if there is any.

    Raises:
      EngineError: If the archive changed since it was listed, also inside the block.
      OSError: If the storage failed, also inside the block.
    """
    opened = OpenArchive(part)
    try:
        try:
            _list_members(opened, context)
        except ImageFault as damage:
            opened.damage = damage
        except PermissionError as error:
            words = (error.strerror or str(error)).lower()
            opened.damage = unread(QuarantineReason.UNREADABLE, words)
        yield opened
    except FileNotFoundError:
        raise storage.changed(part.path) from None


def _list_members(opened: OpenArchive, context: Context) -> None:
    """Lists the members of an archive.

    Raises:
      ImageFault: If the archive is damaged, after the members before the damage.
    """
    key, (path, size, version, *_), *_ = opened.archive
    if not size:
        raise unread(QuarantineReason.EMPTY_FILE, "the archive has no bytes")
    reader = unpacked = RangeReader(path, size, version)
    opened.kind = kind_of_archive(reader, key)
    if not opened.kind:
        message = "its name says archive, but its bytes are not an archive; copy or pack it again"
        raise unread(QuarantineReason.CORRUPT, message)
    state, whole = f"{size}:{version}", ByteRange("", 0, size, file_size=size, file_version=version)
    if opened.kind in COMPRESSED:
        identity = "\0".join((path, state, _SPOOL_FORMAT))
        whole = context.spool.fill(identity, path, lambda out: unpack_tar(reader, opened.kind, out))
        unpacked, opened.file = open_ranges(whole.file), whole.file
    is_zip = opened.kind == ZIP
    members = list_zip(reader, whole) if is_zip else list_tar(unpacked.read_at, whole, state)
    for index, ref in enumerate(members):
        if index == MAX_MEMBERS:
            message = f"it has more than {MAX_MEMBERS} members; pack the rest into another archive"
            raise unread(QuarantineReason.TOO_LARGE, message)
        if ref:
            opened.add(ref)
