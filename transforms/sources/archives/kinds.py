"""Detects the kind of an archive from its bytes; its name is only a hint."""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.transforms.images.signatures import claims_to_be_image
from shardwright.transforms.sources.archives.compressed import BZIP2, GZIP, XZ, ZSTD, unpack_head
from shardwright.transforms.sources.archives.tars import is_tar_head
from shardwright.transforms.sources.archives.zips import END_SIGN, MAX_END_BYTES
from shardwright.transforms.sources.input_probe import HEAD_BYTES, InputProbe
from shardwright.transforms.storage.ranges import RangeReader

ZIP, TAR = "zip", "tar"
_EXTENSIONS = {
    ".zip": ZIP,
    ".tar": TAR,
    ".tar.gz": GZIP,
    ".tgz": GZIP,
    ".tar.bz2": BZIP2,
    ".tbz2": BZIP2,
    ".tbz": BZIP2,
    ".tar.xz": XZ,
    ".txz": XZ,
    ".tar.zst": ZSTD,
    ".tzst": ZSTD,
    ".tar.zstd": ZSTD,
}
#: Other extensions of archives; such members are reported as nested archives.
_OTHERS = (
    ".gz",
    ".bz2",
    ".xz",
    ".zst",
    ".7z",
    ".rar",
    ".lzma",
    ".z",
    ".cab",
    ".iso",
    ".jar",
    ".lz4",
    ".arj",
    ".lzh",
)
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
#: Most subfolders in which archives are searched.
_MAX_FOLDERS = 30


def extension_kind(name: str) -> str:
    """Returns the kind that a file's extension names; empty if it is not a supported archive."""
    lower = name.lower()
    return next((kind for extension, kind in _EXTENSIONS.items() if lower.endswith(extension)), "")


def is_archive_name(name: str) -> bool:
    """Returns whether a name has the extension of an archive."""
    return bool(extension_kind(name)) or name.lower().endswith(_OTHERS)


def is_archive_head(head: bytes) -> bool:
    """Returns whether a file's first bytes are those of an archive of any kind."""
    return (
        head.startswith(_OTHER_MAGIC)
        or any(head.startswith(magic) for magic, _ in _MAGIC)
        or is_tar_head(head)
    )


def kind_of_archive(reader: RangeReader, name: str) -> str:
    """Returns the kind of an archive, detected from its bytes; empty if it is not an archive.

    Args:
      reader: Reader of the file.
      name: File name, which decides if damage leaves no other sign.
    """
    head = reader.read_at(0, HEAD_BYTES)
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            is_kind = (
                kind == ZIP
                or extension_kind(name) == kind
                or is_tar_head(unpack_head(head, kind, HEAD_BYTES))
            )
            return kind if is_kind else ""
    if is_tar_head(head):
        return TAR
    # A program may precede a zip.
    tail = reader.read_at(max(0, reader.size - MAX_END_BYTES), MAX_END_BYTES)
    return ZIP if END_SIGN in tail and extension_kind(name) in ("", ZIP) else ""


def first_archive(probe: InputProbe) -> str:
    """Returns the path of the first archive in a folder of archives; empty if the folder is not one.

    A folder of archives has no image beside the first archives found on the way down, and fewer
    images than archives in their folders.
    """
    if probe.is_file:
        return ""
    for folder in _folders(probe):
        archives = [name for name in folder.files if extension_kind(name) and not name.startswith(".")]
        if any(claims_to_be_image(name) and not name.startswith(".") for name in folder.files):
            return ""
        if archives:
            return "" if probe.images_below > len(archives) else folder.inside(archives[0]).path
    return ""


def _folders(probe: InputProbe) -> Iterator[InputProbe]:
    """Yields a folder and some of its subfolders, level by level."""
    level, count = [probe], 0
    while level:
        following: list[InputProbe] = []
        for folder in level:
            yield folder
            count += 1
            if count >= _MAX_FOLDERS:
                return
            names = [name for name in folder.folders if not name.startswith(".")]
            following += folder.folders_inside(names[:_MAX_FOLDERS])
        level = following
