"""Tells what kind of archive a file is, by its bytes; its name is only a hint."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Iterator

import zstandard

from shardwright.transforms.images.signatures import claims_to_be_image
from shardwright.transforms.sources.archives.tar_headers import BLOCK, find_header, parse_header
from shardwright.transforms.sources.input_probe import HEAD_BYTES, InputProbe
from shardwright.transforms.storage.ranges import RangeReader

ZIP, TAR, GZIP, BZIP2, XZ, ZSTD = "zip", "tar", "gzip", "bzip2", "xz", "zstd"
#: Kinds that hold a tar which has to be unpacked before its members can be reached.
COMPRESSED = (GZIP, BZIP2, XZ, ZSTD)
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
#: What else archives are called: inside of another they are named for what they are.
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
    (b"PK\5\6", ZIP),
    (b"\x1f\x8b\x08", GZIP),
    (b"BZh", BZIP2),
    (b"\xfd7zXZ\0", XZ),
    (b"\x28\xb5\x2f\xfd", ZSTD),
    (b"\x50\x2a\x4d\x18", ZSTD),  # pzstd begins with a frame to be skipped
)
_OTHER_MAGIC = (b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07")
_TAIL = 22 + 0xFFFF
#: Memory that a decoder may take, whatever the archive asks for: what `xz -9` and `zstd --ultra` need.
MAX_DECODER_BYTES = 256 << 20
MAX_WINDOW_BYTES = 128 << 20
#: Sub-folders that are looked into for archives, in all.
_MOST_FOLDERS = 30


def extension_kind(name: str) -> str:
    """Returns the kind that a file's name claims; empty if it claims to be no archive that is read."""
    lower = name.lower()
    return next((kind for extension, kind in _EXTENSIONS.items() if lower.endswith(extension)), "")


def is_archive_name(name: str) -> bool:
    """Whether a name is that of an archive of any kind."""
    return bool(extension_kind(name)) or name.lower().endswith(_OTHERS)


def is_archive_head(head: bytes) -> bool:
    """Whether a file that begins so is an archive of any kind."""
    return (
        head.startswith(_OTHER_MAGIC) or any(head.startswith(magic) for magic, _ in _MAGIC) or _is_tar(head)
    )


def kind_of_archive(reader: RangeReader, name: str) -> str:
    """Returns what kind of archive a file is by its bytes; empty if it is none.

    Args:
      reader: of the file.
      name: whose claim counts where damage leaves no other sign.
    """
    head = reader.read_at(0, HEAD_BYTES)
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            if kind == ZIP or _is_tar(unpack_head(head, kind)) or extension_kind(name) == kind:
                return kind
            return ""
    if _is_tar(head):
        return TAR
    tail = reader.read_at(max(0, reader.size - _TAIL), _TAIL)
    if b"PK\5\6" in tail and extension_kind(name) in ("", ZIP):
        return ZIP
    if extension_kind(name) == ZIP and b"PK\3\4" in head:
        return ZIP
    if extension_kind(name) == TAR and find_header(reader, 0, min(reader.size, 1 << 24)) >= 0:
        return TAR
    return ""


def _is_tar(head: bytes) -> bool:
    if len(head) < BLOCK:
        return False
    if not any(head[:BLOCK]):
        return len(head) >= 2 * BLOCK and not any(head[: 2 * BLOCK])
    return parse_header(head[:BLOCK]) is not None


def unpack_head(head: bytes, kind: str, limit: int = HEAD_BYTES) -> bytes:
    """Returns what the first bytes of a compressed file unpack to, as far as that goes."""
    try:
        if kind == GZIP:
            return zlib.decompressobj(31).decompress(head, limit)
        if kind == BZIP2:
            return bz2.BZ2Decompressor().decompress(head, limit)
        if kind == XZ:
            return lzma.LZMADecompressor(memlimit=MAX_DECODER_BYTES).decompress(head, limit)
        return (
            zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
            .decompressobj()
            .decompress(head)[:limit]
        )
    except Exception:  # whatever is wrong with it shows when it is read
        return b""


def first_archive(glimpse: InputProbe) -> str:
    """Returns the path of the first archive of a folder of archives; empty if it is none.

    It is one if no image lies beside the first archives that are found, going down the folders, and
    fewer images than archives in its folders.
    """
    if glimpse.is_file:
        return ""
    for folder in _folders(glimpse):
        archives = [name for name in folder.files if extension_kind(name) and not name.startswith(".")]
        if any(claims_to_be_image(name) and not name.startswith(".") for name in folder.files):
            return ""
        if archives:
            return "" if glimpse.images_below > len(archives) else folder.inside(archives[0]).path
    return ""


def _folders(glimpse: InputProbe) -> Iterator[InputProbe]:
    """Yields a folder and some of those in it, level by level."""
    level, count = [glimpse], 0
    while level:
        following: list[InputProbe] = []
        for folder in level:
            yield folder
            count += 1
            if count >= _MOST_FOLDERS:
                return
            names = [name for name in folder.folders if not name.startswith(".")]
            following += [look_at_folder(folder, name) for name in names[:_MOST_FOLDERS]]
        level = following


def look_at_folder(folder: InputProbe, name: str) -> InputProbe:
    """Returns a look at a folder in another."""
    return InputProbe(f"{folder.path.rstrip('/')}/{name}", is_file=False)
