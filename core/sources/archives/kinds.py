"""Detects the kind of an archive from its bytes; its name is only a hint."""

from __future__ import annotations

import contextlib
from itertools import islice

from shardwright.core.images.signatures import claims_to_be_image
from shardwright.core.sources.archives.compressed import (
    BZIP2,
    COMPRESSED,
    GZIP,
    XZ,
    ZSTD,
    unpack_head,
)
from shardwright.core.sources.archives.members import ArchiveDamage, Member, ReadAt
from shardwright.core.sources.archives.tars import is_tar_head, list_tar
from shardwright.core.sources.archives.zips import END_SIGN, MAX_END_BYTES
from shardwright.core.sources.containers import folders_near
from shardwright.core.sources.image_files import is_hidden
from shardwright.core.sources.input_probe import HEAD_BYTES, InputProbe
from shardwright.core.storage.ranges import RangeReader, open_ranges
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable

ZIP, TAR = "zip", "tar"
_EXTENSIONS = {
    ZIP: (".zip",),
    TAR: (".tar",),
    GZIP: (".tar.gz", ".tgz"),
    BZIP2: (".tar.bz2", ".tbz2", ".tbz"),
    XZ: (".tar.xz", ".txz"),
    ZSTD: (".tar.zst", ".tzst", ".tar.zstd"),
}
#: Other extensions of archives; such members are reported as nested archives.
_OTHERS = (
    ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar", ".lzma", ".z", ".cab", ".iso", ".jar", ".lz4", ".arj", ".lzh"
)  # fmt: skip
_MAGIC = (
    (b"PK\3\4", ZIP),
    (END_SIGN, ZIP),
    (b"\x1f\x8b\x08", GZIP),
    (b"BZh", BZIP2),
    (b"\xfd7zXZ\0", XZ),
    (b"\x28\xb5\x2f\xfd", ZSTD),
    (b"\x50\x2a\x4d\x18", ZSTD),  # pzstd begins with a skippable frame
)
_OTHER_MAGIC = (b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07")
#: Members that show what an archive holds, and the bytes in which they are searched if it is compressed.
_FIRST_MEMBERS, _PACKED_BYTES, _UNPACKED_BYTES = 12, 4 << 20, 16 << 20


def extension_kind(name: str) -> str:
    """Returns the kind that a file's extension names; empty if it is not a supported archive."""
    lower = name.lower()
    return next((kind for kind, extensions in _EXTENSIONS.items() if lower.endswith(extensions)), "")


def is_archive_name(name: str) -> bool:
    """Returns whether a name has the extension of an archive."""
    return bool(extension_kind(name)) or name.lower().endswith(_OTHERS)


def kind_of_head(head: bytes) -> str:
    """Returns the kind of archive, or the compression, that a file's first bytes show; empty for another."""
    by_magic = next((kind for magic, kind in _MAGIC if head.startswith(magic)), "")
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


def first_members(read_at: ReadAt, size: int, kind: str) -> list[Member]:
    """Returns the first members of a tar, up to the first damage; of a compressed one, from its beginning.

    Args:
      read_at: Function that reads the file.
      size: Size of the file.
      kind: Kind of the archive.
    """
    if kind in COMPRESSED:
        data = unpack_head(read_at(0, _PACKED_BYTES), kind, _UNPACKED_BYTES)
        read_at, size = (lambda offset, length: data[offset : offset + length]), len(data)
    members: list[Member] = []
    with contextlib.suppress(ArchiveDamage):  # also where the unpacked data ends
        for member in islice(list_tar(read_at, size), _FIRST_MEMBERS):
            members.append(member)
    return members


def checked_kind(probe: InputProbe) -> str:
    """Returns the kind of an archive; empty for a folder of archives.

    Raises:
      UsageError: If the input is neither.
    """
    kind = ""
    if probe.is_file:
        with open_ranges(probe.path) as reader:
            kind = kind_of_archive(reader, probe.name)
    if not kind and not first_archive(probe):
        raise UsageError(
            f"--input {printable(probe.path)} is neither an archive nor a folder of archives (zip, tar, "
            "tar.gz, tar.bz2, tar.xz, tar.zst); check the path."
        )
    return kind


def first_archive(probe: InputProbe) -> str:
    """Returns the path of the first archive in a folder of archives; empty if the folder is not one.

    A folder of archives has no image beside the first archives found on the way down, and fewer
    images than archives in their folders.
    """
    for folder in folders_near(probe) if not probe.is_file else ():
        names = [name for name in folder.files if not is_hidden(name)]
        archives = list(filter(extension_kind, names))
        if any(map(claims_to_be_image, names)):
            return ""
        if archives:
            return "" if probe.images_below > len(archives) else folder.inside(archives[0]).path
    return ""
