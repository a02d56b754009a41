"""Detects the format of an image file from its first bytes, and from its extension."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from shardwright.schemas.image_formats import EXTENSIONS, KIND_OF_EXTENSION

#: Number of bytes that `kind_of` needs.
HEAD_BYTES = 512

#: First bytes of files -> format; the first that fits counts.
_PREFIXES: Mapping[tuple[bytes, ...], str] = {
    (b"\xff\xd8\xff\xf7",): "jpeg_ls",
    (b"\xff\xd8\xff",): "jpeg",
    (b"\x89PNG\r\n\x1a\n",): "png",
    (b"GIF87a", b"GIF89a"): "gif",
    (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"): "tiff",
    (b"IIU\0", b"IIRO", b"IIRS", b"MMOR", b"FUJIFILMCCD-RAW", b"FOVb", b"\0MRM"): "camera_raw",
    (b"II\xbc",): "jpeg_xr",
    (b"8BPS",): "psd",
    (b"\xc5\xd0\xd3\xc6",): "eps",
    (b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51"): "jpeg2000",
    (b"\xff\x0a", b"\0\0\0\x0cJXL \r\n\x87\n"): "jpeg_xl",
    (b"icns",): "icns",
    (b"DDS ",): "dds",
    (b"qoif",): "qoi",
    (b"BPG\xfb",): "bpg",
    (b"\x8aMNG\r\n\x1a\n", b"\x8bJNG\r\n\x1a\n"): "mng",
    (b"v/1\x01",): "openexr",
    (b"#?RADIANCE", b"#?RGBE"): "radiance",
    (b"SIMPLE  =",): "fits",
    (b"/* XPM */",): "xpm",
    (b"gimp xcf",): "xcf",
    (b"\x59\xa6\x6a\x95",): "sun_raster",
    (b"farbfeld",): "farbfeld",
    (b"FLIF",): "flif",
    (b"\xd7\xcd\xc6\x9a",): "wmf",
    (b"P7\n",): "pam",
}
_HEIF_BRANDS = frozenset((b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1", b"avci"))
#: Patterns at the beginning of files -> format; the first that fits counts.
_PATTERNS: Mapping[re.Pattern[bytes], str] = {
    re.compile(pattern, re.DOTALL): kind
    for pattern, kind in (
        (rb"RIFF.{4}WEBP", "webp"),
        (rb"BM.{12}[\x0c\x10\x28\x34\x38\x40\x6c\x7c].{3}", "bmp"),
        (rb"P[1-6](?:[ \t\r\n]|#)[\d\s#]", "ppm"),
        (rb"P[Ff]\r?\n\d+\s", "pfm"),
        (rb"%!PS-Adobe-[^\r\n]*EPSF", "eps"),
        (rb"(?:\xef\xbb\xbf)?\s*(?=<(?:\?xml|!--|!DOCTYPE\s+svg|svg)).*<svg[\s>]", "svg"),
        (rb"\s*(?:/\*.*?\*/\s*)?#define\s+\S+_width\s+\d", "xbm"),
        (rb".{128}DICM", "dicom"),
        (rb"\x01\0\0\0.{36} EMF", "wmf"),
        (rb"II.{4}HEAPCCDR", "camera_raw"),  # Canon's CRW
        (rb"\x01\xda[\0\x01][\x01\x02]\0[\x01-\x03]", "sgi"),  # one to three dimensions
    )
}
#: Tag 50706, `DNGVersion`, which marks a TIFF as a digital negative (DNG specification 1.7, chapter 4).
_DNG_VERSION = 50706
_TIFF_ENTRY_BYTES = 12
_BITS_OF_ICONS = frozenset((0, 1, 4, 8, 16, 24, 32))


#: Extensions of files that are never images; the first bytes of all other files are checked.
_OTHER_KINDS = frozenset(
    """txt json jsonl xml csv tsv md html htm yaml yml toml ini cfg log py ipynb js css sh bat c h cpp java
    pdf doc docx xls xlsx ppt pptx mp3 wav flac ogg mp4 avi mov mkv webm npy npz pkl pickle pt pth h5 hdf5
    mat parquet tfrecord db sqlite cls caption sha256 md5""".split()  # noqa: SIM905
)


def kind_of(head: bytes) -> str | None:
    """Returns the image format that a file's first bytes show, or None.

    Sources: the formats' specifications, the `file` database and Pillow's `accept` functions.
    """
    for prefixes, kind in _PREFIXES.items():
        if head.startswith(prefixes):
            if kind == "tiff" and _is_raw_tiff(head):
                return "camera_raw"
            return "jpm" if head[16:24] == b"ftypjpm " else kind
    if head[4:8] == b"ftyp":
        brands = {head[8:12], *(head[i : i + 4] for i in range(16, min(head[3], len(head)), 4))}
        if brands & {b"avif", b"avis"}:
            return "avif"
        if head[8:12] == b"crx ":
            return "camera_raw"
        return "heif" if brands & _HEIF_BRANDS else None
    if head[:3] == b"\0\0\1" or head[:3] == b"\0\0\2":
        return _icon_kind(head)
    return next((kind for pattern, kind in _PATTERNS.items() if pattern.match(head)), None)


def _is_raw_tiff(head: bytes) -> bool:
    """Returns whether a TIFF is a camera raw file, judging by its first bytes."""
    if head[8:10] == b"CR":  # Canon's CR2
        return True
    order: Literal["little", "big"] = "little" if head[:2] == b"II" else "big"
    first = int.from_bytes(head[4:8], order)
    entries = head[first + 2 : first + 2 + _TIFF_ENTRY_BYTES * int.from_bytes(head[first : first + 2], order)]
    tags = (int.from_bytes(entries[i : i + 2], order) for i in range(0, len(entries) - 1, _TIFF_ENTRY_BYTES))
    return _DNG_VERSION in tags


def _icon_kind(head: bytes) -> str | None:
    """Detects icons and cursors among files that begin with the same bytes, such as Targa pictures."""
    entries, reserved = int.from_bytes(head[4:6], "little"), head[9:10]
    if head[3:4] != b"\0" or not 0 < entries < 256 or reserved != b"\0":
        return None
    if head[2] == 2:
        return "cur"
    planes, bits = (int.from_bytes(head[i : i + 2], "little") for i in (10, 12))
    return "ico" if planes <= 1 and bits in _BITS_OF_ICONS else None


def claims_to_be_image(name: str) -> bool:
    """Returns whether a file has the extension of a supported image format."""
    return extension_of(name) in EXTENSIONS


def is_image_name(name: str) -> bool:
    """Returns whether a file has the extension of any image format, supported or not."""
    extension = extension_of(name)
    return extension in EXTENSIONS or extension in KIND_OF_EXTENSION


def could_be_image(name: str) -> bool:
    """Returns whether a file with this name could be an image, so that its bytes must be checked."""
    return extension_of(name) not in _OTHER_KINDS


def extension_of(name: str) -> str:
    """Returns a file name's extension in lower case; empty if it has none."""
    stem, _, extension = name.rpartition(".")
    return extension.lower() if stem else ""
