"""Tells a file's kind from its first bytes, and what its name claims to be."""

from __future__ import annotations

import re

#: Bytes that `kind_of` wants to see.
HEAD_BYTES = 512

#: Kinds that are decoded, with Pillow's names for the plugins that may open them.
SUPPORTED_KINDS = {
    "jpeg": "JPEG",
    "png": "PNG",
    "webp": "WEBP",
    "gif": "GIF",
    "bmp": "BMP",
    "tiff": "TIFF",
    "avif": "AVIF",
    "ppm": "PPM",
}

_IMAGE_EXTENSIONS = frozenset(
    [
        "jpg",
        "jpeg",
        "jpe",
        "jfif",
        "mpo",
        "png",
        "apng",
        "webp",
        "gif",
        "bmp",
        "dib",
        "tif",
        "tiff",
        "avif",
        "ppm",
        "pgm",
        "pbm",
        "pnm",
    ]
)

_PREFIXES = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"II+\0", "tiff"),
    (b"MM\0+", "tiff"),
    (b"8BPS", "psd"),
    (b"%!PS", "eps"),
    (b"\xc5\xd0\xd3\xc6", "eps"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "jpeg2000"),
    (b"\xff\x4f\xff\x51", "jpeg2000"),
    (b"\xff\x0a", "jpeg_xl"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "jpeg_xl"),
    (b"\0\0\1\0", "ico"),
    (b"\0\0\2\0", "cur"),
    (b"icns", "icns"),
    (b"DDS ", "dds"),
    (b"qoif", "qoi"),
    (b"v/1\x01", "openexr"),
    (b"SIMPLE  =", "fits"),
    (b"\x01\xda", "sgi"),
    (b"/* XPM */", "xpm"),
    (b"gimp xcf", "xcf"),
    (b"\x59\xa6\x6a\x95", "sun_raster"),
    (b"farbfeld", "farbfeld"),
    (b"FLIF", "flif"),
)
_HEIF_BRANDS = frozenset((b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"))
_XML = re.compile(rb"(?:\xef\xbb\xbf)?\s*<(?:\?xml|!--|!DOCTYPE\s+svg|svg)")
_SVG = re.compile(rb"<svg[\s>]")
_PNM = re.compile(rb"P[1-6](?:[ \t\r\n]|#)[\d\s#]")
_XBM = re.compile(rb"\s*(?:/\*.*?\*/\s*)?#define\s+\S+_width\s+\d", re.DOTALL)


def kind_of(head: bytes) -> str | None:
    """Returns the kind of image that a file's first bytes announce, or None if it is none.

    Sources: the formats' own specifications, as the `file` database and Pillow's `accept` use them.
    """
    for prefix, kind in _PREFIXES:
        if head.startswith(prefix):
            return kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    if head[:2] == b"BM" and len(head) >= 18 and head[14] in (12, 16, 40, 52, 56, 64, 108, 124):
        return "bmp"
    if head[4:8] == b"ftyp":
        brands = {head[8:12], *(head[i : i + 4] for i in range(16, min(head[3], len(head)), 4))}
        if brands & {b"avif", b"avis"}:
            return "avif"
        return "heif" if brands & _HEIF_BRANDS else None
    if _PNM.match(head):
        return "ppm"
    if _XML.match(head) and _SVG.search(head):
        return "svg"
    return "xbm" if _XBM.match(head) else None


def claims_to_be_image(name: str) -> bool:
    """Whether a file's extension is that of a supported kind of image."""
    stem, _, extension = name.rpartition(".")
    return bool(stem) and extension.lower() in _IMAGE_EXTENSIONS
