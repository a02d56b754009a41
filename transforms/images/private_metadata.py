"""Finds data about people in the metadata of encoded images: where, with which camera, and by whom.

It looks at EXIF, XMP and IPTC in JPEG, PNG and WebP, at EXIF in TIFF, and at authors in texts of PNG. In a
JPEG the images behind the first one count, too (previews, and other pictures of the same moment). Notes of
camera makers are not read, because each maker has a format of its own.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence

POSITION, SERIAL_NUMBER, PERSON = "position", "serial_number", "person"
#: All kinds of private data, in the order in which they are listed, and their names in sentences.
PRIVATE_KINDS: Mapping[str, str] = {
    POSITION: "a GPS position",
    SERIAL_NUMBER: "a serial number",
    PERSON: "a name of a person",
}

_EXIF = b"Exif\0\0"
_JPEG_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_JPEG_LONG_XMP = b"http://ns.adobe.com/xmp/extension/\0"
_JPEG_IPTC = b"Photoshop 3.0\0"
#: Largest content of a JPEG segment.
_SEGMENT_BYTES = 65_533
#: Largest number of blocks of a kind, of chunks, and of entries in a directory that are looked at.
_MAX_BLOCKS, _MAX_CHUNKS, _MAX_ENTRIES = 64, 100_000, 1000
#: Largest text of a PNG that is decompressed.
_MAX_TEXT = 4_000_000
_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 13: 4}
_EXIF_DIRECTORY, _GPS_DIRECTORY = 0x8769, 0x8825
_LATITUDE, _LONGITUDE = 2, 4
_TEXT_TAGS: Mapping[int, str] = {
    0x013B: PERSON,  # Artist
    0x9C9D: PERSON,  # XPAuthor
    0xA430: PERSON,  # CameraOwnerName
    0xA431: SERIAL_NUMBER,  # BodySerialNumber
    0xA435: SERIAL_NUMBER,  # LensSerialNumber
    0xC62F: SERIAL_NUMBER,  # CameraSerialNumber
}
_VALUE = rb"""(?:\s*=\s*["']|>)\s*[^"'<\s]"""
_XMP: Mapping[str, re.Pattern[bytes]] = {
    POSITION: re.compile(rb"GPSL(?:atitude|ongitude)" + _VALUE),
    SERIAL_NUMBER: re.compile(rb"SerialNumber" + _VALUE),
    PERSON: re.compile(
        rb"(?:OwnerName|:Artist|:creator)" + _VALUE + rb"|<dc:creator>\s*<rdf:\w+>\s*<rdf:li[^>]*>\s*[^<\s]"
    ),
}
_BY_LINE, _WRITER = (2, 80), (2, 122)
_PNG_AUTHORS = (b"Author", b"Artist")


def private_metadata(data: bytes, kind: str) -> tuple[str, ...]:
    """Returns the kinds of private data in an encoded image (`PRIVATE_KINDS`).

    Args:
      data: bytes of the whole file.
      kind: jpeg, png, webp or tiff; other formats have none that is looked at.
    """
    read = _READERS.get(kind)
    if read is None:
        return ()
    found = set(read(data))
    return tuple(name for name in PRIVATE_KINDS if name in found)


def in_words(kinds: Sequence[str]) -> str:
    """Returns kinds as part of a sentence: `a GPS position and a serial number`."""
    words = [PRIVATE_KINDS[kind] for kind in kinds]
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)


def _of_jpeg(data: bytes) -> Iterator[str]:
    for name, kinds_in in _JPEG_BLOCKS:
        if name in data:
            for block in _blocks(data, name):
                yield from kinds_in(block)


def _blocks(data: bytes, name: bytes) -> Iterator[bytes]:
    """Yields what follows a name; a segment of a JPEG has no more than this."""
    at = data.find(name)
    for _ in range(_MAX_BLOCKS):
        if at < 0:
            return
        yield data[at + len(name) : at + _SEGMENT_BYTES]
        at = data.find(name, at + len(name))


def _of_png(data: bytes) -> Iterator[str]:
    position, texts = 8, 0
    for _ in range(_MAX_CHUNKS):
        if position + 12 > len(data) or texts > _MAX_BLOCKS:
            return
        size = int.from_bytes(data[position : position + 4], "big")
        kind = data[position + 4 : position + 8]
        if kind == b"eXIf":
            yield from _of_exif(data[position + 8 : position + 8 + size])
        elif kind in (b"tEXt", b"zTXt", b"iTXt"):
            texts += 1
            yield from _of_png_text(kind, data[position + 8 : position + 8 + size])
        position += 12 + size


def _of_png_text(kind: bytes, content: bytes) -> Iterator[str]:
    """Yields the kinds in a text: XMP, an author, or a profile that ImageMagick stores in hexadecimal."""
    keyword, _, text = content.partition(b"\0")
    compressed = kind == b"zTXt"
    if kind == b"iTXt":
        compressed, text = text[:1] == b"\1", [*text[2:].split(b"\0", 2), b"", b"", b""][2]
    elif compressed:
        text = text[1:]
    if compressed:
        try:
            text = zlib.decompressobj().decompress(text, _MAX_TEXT)
        except zlib.error:
            return
    if keyword in _PNG_AUTHORS and text.strip():
        yield PERSON
    elif keyword == b"XML:com.adobe.xmp":
        yield from _of_xmp(text)
    elif keyword.startswith(b"Raw profile type "):
        words = text.split(None, 2)
        try:
            profile = bytes.fromhex(words[2].decode("ascii")) if len(words) > 2 else b""
        except ValueError:
            return
        yield from _of_iptc(profile) if keyword.endswith(b"iptc") else _of_profile(profile)


def _of_profile(profile: bytes) -> Iterator[str]:
    if profile.startswith(_EXIF):
        yield from _of_exif(profile[len(_EXIF) :])
    else:
        yield from _of_xmp(profile)


def _of_webp(data: bytes) -> Iterator[str]:
    position = 12
    for _ in range(_MAX_CHUNKS):
        if position + 8 > len(data):
            return
        size = int.from_bytes(data[position + 4 : position + 8], "little")
        content = data[position + 8 : position + 8 + size] if data[position] in b"EX" else b""
        if data[position : position + 4] == b"EXIF":
            yield from _of_exif(content.removeprefix(_EXIF))
        elif data[position : position + 4] == b"XMP ":
            yield from _of_xmp(content)
        position += 8 + size + (size & 1)


def _of_exif(block: bytes) -> Iterator[str]:
    """Yields the kinds in EXIF data, which has the structure of a TIFF (EXIF 3.0, 4.6)."""
    if block[:2] not in (b"II", b"MM"):
        return
    is_little = block[:2] == b"II"

    def number(data: bytes) -> int:
        return int.from_bytes(data, "little" if is_little else "big")

    def entries(at: int) -> Iterator[tuple[int, bytes]]:
        for index in range(min(number(block[at : at + 2]), _MAX_ENTRIES)):
            entry = block[at + 2 + 12 * index : at + 14 + 12 * index]
            if len(entry) < 12:
                return
            size = _TYPE_BYTES.get(number(entry[2:4]), 0) * number(entry[4:8])
            begin = number(entry[8:12])
            yield number(entry[:2]), entry[8 : 8 + size] if size <= 4 else block[begin : begin + size]

    directories = [(number(block[4:8]), False)]
    for tag, value in entries(directories[0][0]):
        if tag in (_EXIF_DIRECTORY, _GPS_DIRECTORY):
            directories.append((number(value), tag == _GPS_DIRECTORY))
    for at, is_gps in directories:
        for tag, value in entries(at):
            if is_gps:
                # Cameras without a position write zeros, or fractions of 0/0.
                if tag in (_LATITUDE, _LONGITUDE) and any(
                    any(value[part : part + 4]) for part in range(0, len(value), 8)
                ):
                    yield POSITION
            elif tag in _TEXT_TAGS and value.strip(b"\0 "):
                yield _TEXT_TAGS[tag]


def _of_xmp(text: bytes) -> Iterator[str]:
    for kind, pattern in _XMP.items():
        if pattern.search(text):
            yield kind


def _of_iptc(block: bytes) -> Iterator[str]:
    """Yields the kinds in Photoshop's resources. Number 0x0404 contains IPTC's datasets (IIM 4.2)."""
    at = block.find(b"8BIM\x04\x04")
    if at < 0 or at + 12 > len(block):
        return
    at += 6 + (block[at + 6] + 2) // 2 * 2  # the name, with its length, has an even size
    end = min(at + 4 + int.from_bytes(block[at : at + 4], "big"), len(block))
    at += 4
    while at + 5 <= end and block[at] == 0x1C:
        size = int.from_bytes(block[at + 3 : at + 5], "big")
        if (block[at + 1], block[at + 2]) in (_BY_LINE, _WRITER) and block[at + 5 : at + 5 + size].strip():
            yield PERSON
        at += 5 + size


_JPEG_BLOCKS = (
    (_EXIF, _of_exif),
    (_JPEG_XMP, _of_xmp),
    (_JPEG_LONG_XMP, _of_xmp),
    (_JPEG_IPTC, _of_iptc),
)
_READERS = {"jpeg": _of_jpeg, "png": _of_png, "webp": _of_webp, "tiff": _of_exif}
