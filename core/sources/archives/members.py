"""Lists the members of zips and tars, with `zipfile` and `tarfile`.

The numbers of sections refer to PKWARE's APPNOTE.TXT 6.3.10.
"""

from __future__ import annotations

import hashlib
import re
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence

from shardwright.core import storage
from shardwright.core.images.faults import unread
from shardwright.core.storage.ranges import RandomAccessFile, RangeReader
from shardwright.schemas.byte_range import BZIP2, DEFLATE, LZMA, STORED, ByteRange
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import words_of
from shardwright.schemas.image_ref import ImageRef, key_from_bytes
from shardwright.schemas.units import format_size

#: Function of an offset and a number of bytes that reads a file, as `RangeReader.read_at` does.
ReadAt = Callable[[int, int], bytes]

#: Longest name of a member.
MAX_NAME_LENGTH = 4096
#: Most bytes that all members of an archive may unpack to: in total, and per byte of the archive.
MAX_UNPACKED_BYTES = 16 * 10**12
MAX_RATIO = 200
#: Up to this many unpacked bytes, the ratio is not limited.
SMALL_BYTES = 10**9
#: Files and folders that operating systems add to folders and archives.
_LEFT_BEHIND = frozenset(("__MACOSX", "Thumbs.db", "desktop.ini", "$RECYCLE.BIN"))
_DRIVE = re.compile(r"[A-Za-z]:")
#: What makes a name unsafe.
_UNSAFE = re.compile(r"(?:^|(?<=/))\.\.(?=/|$)|^/|(?<=^[A-Za-z]):|\\|\0")


def most_unpacked(packed: int) -> int:
    """Returns the number of bytes to which an archive may unpack at most, by its own number of bytes."""
    return min(MAX_UNPACKED_BYTES, max(SMALL_BYTES, MAX_RATIO * packed))


class HeaderFile(RandomAccessFile):
    """A file for libraries that read headers, which may read a limited number of bytes.

    Headers can state any size, so a hostile archive could fill the memory.

    Args:
      read_at: Function that reads the file.
      size: Size of the file.
      most: Number of bytes that may be read.
    """

    def __init__(self, read_at: ReadAt, size: int, most: int) -> None:
        super().__init__(read_at, size)
        self._most = self._left = most

    def read(self, size: int = -1) -> bytes:
        """Returns the next bytes; all that are left if `size` is negative.

        Raises:
          ValueError: If these are more bytes than may be read.
        """
        rest = max(self.size - self.tell(), 0)
        self._left -= min(size, rest) if size >= 0 else rest
        if self._left < 0:
            raise ValueError(f"its headers take more than {format_size(self._most)}")
        return bytes(super().read(size))


def member_ref(
    name: str, place: ByteRange, size: int, state: str, is_folder: bool, fault: tuple[str, str] | None
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
    name = _tidy(name)
    raw = name.encode("utf-8", "surrogateescape")
    key = key_from_bytes(raw)
    is_top = is_folder and not name  # such as the `./` of `tar -cf x.tar .`
    if not is_top and (why := _why_unsafe(name)):
        fault = QuarantineReason.UNSAFE_MEMBER, why
        if len(raw) > MAX_NAME_LENGTH:
            key = key_from_bytes(raw[:200] + b"-" + hashlib.sha256(raw).hexdigest()[:16].encode())
        key = _UNSAFE.sub(lambda match: "".join(f"%{ord(letter):02X}" for letter in match[0]), key)
    ref = ImageRef(key, "", size=size, version=state, place=place.encode())
    if fault:
        return ref.quarantined(*fault)
    return None if is_folder else ref


def _tidy(name: str) -> str:
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


def _why_unsafe(name: str) -> str:
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


#: Most bytes of the directory, which `zipfile` holds in memory: enough for more than two million members.
_MAX_DIRECTORY_BYTES = 320 << 20
#: The end record's signature, and its longest distance from the end of the file (4.3.16).
END_SIGN, MAX_END_BYTES = b"PK\5\6", 22 + 0xFFFF
#: Fixed part of a local header (4.3.7).
_LOCAL_BYTES = 30
_METHODS = {0: STORED, 8: DEFLATE, 12: BZIP2, 14: LZMA}
#: Flags; strong encryption and AES set the first one, too (4.4.4).
_ENCRYPTED, _UTF8 = 1 << 0, 1 << 11
#: Largest ratio of unpacked to packed bytes: the bound of deflate, and the bound of `read_part`.
_MAX_DEFLATE, _MAX_OTHERS = 1032, 1_000_000
_FAT_HOSTS = (0, 10, 11, 14)
#: Size of the record at the end without its comment (4.3.16).
_END_BYTES = 22
#: What `zipfile` raises for a damaged directory.
_ZIP_FAULTS = (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, struct.error)


def list_zip(reader: RangeReader, whole: ByteRange) -> Iterator[ImageRef | None]:
    """Yields the members of a zip in the order of its directory; None for folders.

    Args:
      reader: Reader of the file.
      whole: All bytes of the file.

    Raises:
      ImageFault: If the directory is damaged, or after the members within the limits.
    """
    infos = _directory(reader)
    overlapping = _overlapping(infos, reader.size)
    # Reading a member later enforces the size that is counted here.
    most, total = most_unpacked(reader.size), 0
    for index, info in enumerate(infos):
        ref = _zip_member(info, whole, index in overlapping)
        total += ref.size if ref and ref.is_candidate else 0
        if ref and total > most:
            raise unread(
                QuarantineReason.TOO_LARGE,
                f"its members unpack to more than {format_size(most)}; those from {ref.key[:200]} on are "
                "left out",
            )
        yield ref


def _directory(reader: RangeReader) -> list[zipfile.ZipInfo]:
    """Returns the entries of the directory.

    Raises:
      ImageFault: If it is missing or damaged.
    """
    if END_SIGN not in reader.read_at(max(0, reader.size - MAX_END_BYTES), MAX_END_BYTES):
        raise unread(
            QuarantineReason.TRUNCATED,
            "its directory at the end is missing, as when a download was cut off; copy or download it again",
        )

    def read_at(offset: int, length: int) -> bytes:
        with storage.translated_errors("read", reader.path):  # zipfile takes an OSError for damage
            return reader.read_at(offset, length)

    try:
        with zipfile.ZipFile(HeaderFile(read_at, reader.size, _MAX_DIRECTORY_BYTES)) as archive:
            infos = archive.infolist()
            if not infos and reader.size > _END_BYTES + len(archive.comment):
                raise zipfile.BadZipFile("it names no member, but the archive is not empty")
            return infos
    except _ZIP_FAULTS as error:
        raise unread(
            QuarantineReason.CORRUPT,
            f"its directory cannot be read ({words_of(error)}); copy or pack it again, or join its volumes",
        ) from None


def _overlapping(infos: Sequence[zipfile.ZipInfo], size: int) -> frozenset[int]:
    """Returns the indices of members that share bytes with others, as in zip bombs."""
    overlapping: set[int] = set()
    reached, last = 0, -1
    for index in sorted(range(len(infos)), key=lambda index: infos[index].header_offset):
        begin, end = infos[index].header_offset, _least_end(infos[index])
        if end > size:
            continue  # `_zip_fault` quarantines it
        if begin < reached:
            overlapping |= {index, last}
        if end > reached:
            reached, last = end, index
    return frozenset(overlapping)


def _least_end(info: zipfile.ZipInfo) -> int:
    """Returns the earliest position where a member can end, whose local header may have an extra field."""
    return info.header_offset + _LOCAL_BYTES + len(_raw_name(info)) + info.compress_size


def _raw_name(info: zipfile.ZipInfo) -> bytes:
    """Returns the bytes of a member's name, which `zipfile` has decoded by its flag."""
    return info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")


def _zip_member(info: zipfile.ZipInfo, whole: ByteRange, overlaps: bool) -> ImageRef | None:
    raw = _raw_name(info)
    try:
        name = raw.decode()
    except UnicodeDecodeError:  # it is in code page 437
        name = info.orig_filename
    if "\\" in name and "/" not in name and info.create_system in _FAT_HOSTS:
        name = name.replace("\\", "/")
    is_folder = name.endswith("/") or stat.S_ISDIR(info.external_attr >> 16)
    fault = _zip_fault(info, is_folder, whole.length)
    if overlaps and not fault:
        fault = QuarantineReason.UNSAFE_MEMBER, "it shares bytes with another member"
    place = whole._replace(
        offset=info.header_offset,
        length=info.compress_size,
        method=_METHODS.get(info.compress_type, ""),
        name=raw.decode("utf-8", "surrogateescape"),
        crc32=info.CRC,
    )
    return member_ref(name, place, info.file_size, f"{info.CRC:08x}", is_folder, fault)


def _zip_fault(info: zipfile.ZipInfo, is_folder: bool, archive_size: int) -> tuple[str, str] | None:
    """Returns the quarantine reason and the message of a member that cannot be used, by its entry."""
    mode, packed = info.external_attr >> 16, info.compress_size
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        what = "a symbolic link" if stat.S_ISLNK(mode) else "a device, a pipe or a socket"
        return QuarantineReason.UNSAFE_MEMBER, f"it is {what}"
    if _least_end(info) > archive_size:
        return QuarantineReason.TRUNCATED, f"the archive ends inside its {packed} bytes"
    if is_folder:
        return None
    if info.flag_bits & _ENCRYPTED:
        return QuarantineReason.UNREADABLE, "it is encrypted"
    method = _METHODS.get(info.compress_type)
    if not method:
        why = f"it is compressed with method {info.compress_type}; pack it again with Deflate"
        return QuarantineReason.UNSUPPORTED_FORMAT, why
    # At most this many bytes can, or are allowed to, become of the packed bytes.
    most = packed if method == STORED else 64 + packed * (_MAX_DEFLATE if method == DEFLATE else _MAX_OTHERS)
    if info.file_size > most:
        why = f"its header says {info.file_size} bytes, but {packed} packed bytes cannot become so many"
        return QuarantineReason.CORRUPT, why
    return None


_BLOCK = tarfile.BLOCKSIZE
#: Most bytes of all headers of one member; no valid name needs more.
_MAX_HEADER_BYTES = 1 << 20
#: Most global headers, which apply to all members after them.
_MAX_GLOBAL_HEADERS = 1000
#: Most zero bytes to skip after the end mark in search of more members.
_MAX_ZEROS = 256 << 20
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
_TAR_FAULTS = (tarfile.TarError, ValueError, IndexError, OverflowError, RecursionError)


def is_tar_head(head: bytes) -> bool:
    """Returns whether a file's first bytes are a header of a tar, or the end mark of an empty one."""
    if not any(head[: 2 * _BLOCK]):
        return len(head) >= 2 * _BLOCK
    try:
        tarfile.TarInfo.frombuf(head[:_BLOCK], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def list_tar(read_at: ReadAt, whole: ByteRange, state: str = "") -> Iterator[ImageRef | None]:
    """Yields the members of a tar in their order, and those of tars that are joined to it; None for folders.

    Args:
      read_at: Function that reads the file.
      whole: All bytes of the file.
      state: State of the archive, which marks members whose headers have no time.

    Raises:
      ImageFault: After the members before the damage.
    """
    position = zeros = 0
    try:
        file = HeaderFile(read_at, whole.length, _MAX_HEADER_BYTES)
        tar = tarfile.TarFile(fileobj=file, encoding="utf-8", errors="surrogateescape")
        while True:
            tar.fileobj = HeaderFile(read_at, whole.length, _MAX_HEADER_BYTES)
            tar.fileobj.seek(position)
            try:
                info = tarfile.TarInfo.fromtarfile(tar)
            except tarfile.HeaderError:
                block = read_at(position, _BLOCK)
                if any(block) and (zeros or len(block) == _BLOCK):
                    raise
                if any(block) or not (block or zeros):
                    raise unread(
                        QuarantineReason.TRUNCATED,
                        "it ends without an end mark, so members may be missing; copy or download it again",
                    ) from None
                if not block:
                    return
                # Zeros are the end mark, but another tar may follow.
                position, zeros = position + len(block), zeros + len(block)
                if zeros > _MAX_ZEROS:
                    raise tarfile.ReadError("only zeros follow") from None
                tar.pax_headers = {}
                continue
            position, zeros = tar.offset, 0
            if min(info.size, position - info.offset_data) < 0:
                raise tarfile.ReadError("a size is negative")
            if len(tar.pax_headers) > _MAX_GLOBAL_HEADERS:
                raise tarfile.ReadError("it has too many global headers")
            if info.type != _VOLUME_LABEL:
                yield _tar_member(info, whole, state)
    except _TAR_FAULTS as error:
        raise unread(
            QuarantineReason.CORRUPT,
            f"its headers cannot be read from byte {position} on ({words_of(error)}), so later members "
            "are missing; copy or pack it again",
        ) from None


def _tar_member(info: tarfile.TarInfo, whole: ByteRange, state: str) -> ImageRef | None:
    fault = None
    if why := "it is a sparse file" if info.issparse() else _UNSAFE_TYPES.get(info.type, ""):
        fault = QuarantineReason.UNSAFE_MEMBER.value, why
    elif info.offset_data + info.size > whole.length:
        there = max(0, whole.length - info.offset_data)
        fault = QuarantineReason.TRUNCATED.value, f"the archive ends after {there} of its {info.size} bytes"
    return member_ref(
        info.name,
        whole._replace(offset=info.offset_data, length=info.size),
        info.size,
        str(int(info.mtime)) if _NO_TIME < info.mtime < _LATEST_TIME else state,
        info.isdir() or info.type == _DUMPED_FOLDER or (info.isreg() and info.name.endswith("/")),
        fault,
    )
