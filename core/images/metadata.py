"""Removes metadata from encoded images, or finds data about people in it: where, with which camera, by whom.

The search looks at EXIF, XMP and IPTC in JPEG, PNG and WebP, at EXIF in TIFF, and at authors in texts of PNG.
In a JPEG the images behind the first one count, too (previews, and other pictures of the same moment). Notes
of camera makers are not read, because each maker has a format of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from shardwright.core.images.formats import FORMATS
from shardwright.core.images.formats.containers import GPS_DIRECTORY, tiff_tags
from shardwright.core.images.formats.opened_image import OpenedImage

POSITION, SERIAL_NUMBER, PERSON = "position", "serial_number", "person"
#: All kinds of private data, in the order in which they are listed, and their names in sentences.
PRIVATE_KINDS: Mapping[str, str] = {
    POSITION: "a GPS position",
    SERIAL_NUMBER: "a serial number",
    PERSON: "a name of a person",
}

#: Most tags of EXIF data that are looked at.
_MAX_TAGS = 8000
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


def strip_metadata(data: bytes, kind: str) -> bytes:
    """Removes EXIF, GPS, XMP, text and comments from an encoded image; its pixels do not change.

    Data that a decoder needs (color profile, Adobe marker, gamma) stays.

    Args:
      data: Bytes of the whole file, which can be decoded.
      kind: jpeg, png or webp; other formats are returned unchanged.
    """
    return FORMATS.get(kind, OpenedImage).without_metadata(data)


def private_metadata(data: bytes, kind: str) -> tuple[str, ...]:
    """Returns the kinds of private data in an encoded image (`PRIVATE_KINDS`).

    Args:
      data: Bytes of the whole file.
      kind: jpeg, png, webp or tiff; other formats have none that is looked at.
    """
    present = {
        name
        for block in FORMATS.get(kind, OpenedImage).metadata(data)
        for name in _KINDS_IN[block.kind](block.content)
    }
    return tuple(name for name in PRIVATE_KINDS if name in present)


def _of_exif(block: bytes) -> Iterator[str]:
    for tag in islice(tiff_tags(block), _MAX_TAGS):
        if tag.directory == GPS_DIRECTORY and tag.number in (_LATITUDE, _LONGITUDE):
            value = block[tag.begin : tag.begin + tag.size]
            # Cameras without a position write zeros, or fractions of 0/0.
            if any(any(value[part : part + 4]) for part in range(0, len(value), 8)):
                yield POSITION
        elif (
            tag.directory != GPS_DIRECTORY
            and tag.number in _TEXT_TAGS
            and block[tag.begin : tag.begin + tag.size].strip(b"\0 ")
        ):
            yield _TEXT_TAGS[tag.number]


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


#: Kind of a block -> function that returns the private data in its content.
_KINDS_IN: Mapping[str, Callable[[bytes], Iterable[str]]] = {
    "exif": _of_exif,
    "xmp": lambda text: (kind for kind, pattern in _XMP.items() if pattern.search(text)),
    "iptc": _of_iptc,
    "author": lambda text: (PERSON,) if text.strip() else (),
}
