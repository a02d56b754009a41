"""Removes metadata from encoded images without touching their pixels."""

from __future__ import annotations

from shardwright.transforms.images.jpeg_segments import END_OF_IMAGE, jpeg_segments

_JPEG_COMMENT = 0xFE
#: The application segments that a decoder needs: JFIF, a color profile, Adobe's color transform.
_JPEG_DECODING = {0xE0: b"JFIF\0", 0xE2: b"ICC_PROFILE\0", 0xEE: b"Adobe"}
_PNG_METADATA = frozenset((b"eXIf", b"tEXt", b"zTXt", b"iTXt", b"tIME"))
_WEBP_METADATA = frozenset((b"EXIF", b"XMP "))
_WEBP_METADATA_FLAGS = 0x08 | 0x04


def strip_metadata(data: bytes, kind: str) -> bytes:
    """Removes EXIF, GPS, XMP, text and comments from an encoded image; its pixels do not change.

    Data that a decoder needs (color profile, Adobe marker, gamma) stays.

    Args:
      data: bytes of the whole file, which can be decoded.
      kind: jpeg, png or webp; other formats are returned unchanged.
    """
    if kind == "jpeg":
        return _strip_jpeg(data)
    if kind == "png":
        return _strip_png(data)
    return _strip_webp(data) if kind == "webp" else data


def _strip_jpeg(data: bytes) -> bytes:
    """Drops descriptive segments and all bytes after the picture (ITU-T T.81, B.1.1).

    The bytes after the picture are not part of it: previews with their own metadata, makers' trailers.
    """
    out: list[bytes] = []
    begin, previous_end = 0, 2
    for marker, start, end, _ in jpeg_segments(data):
        if marker == END_OF_IMAGE or not _decodes(marker, data[start + 4 : end]):
            # Fill bytes before the marker go with it.
            out += [data[begin:previous_end], data[previous_end:start].rstrip(b"\xff")]
            if marker == END_OF_IMAGE:
                return b"".join((*out, b"\xff\xd9"))
            begin = end
        previous_end = end
    return b"".join((*out, data[begin:]))


def _decodes(marker: int, content: bytes) -> bool:
    """Returns whether a decoder needs a segment."""
    if 0xE0 <= marker <= 0xEF:
        return content.startswith(_JPEG_DECODING.get(marker, b"\0none"))
    return marker != _JPEG_COMMENT


def _strip_png(data: bytes) -> bytes:
    """Drops ancillary chunks (PNG specification, 5.3)."""
    out = [data[:8]]
    position = 8
    while position + 12 <= len(data):
        end = position + 12 + int.from_bytes(data[position : position + 4], "big")
        kind = data[position + 4 : position + 8]
        if kind not in _PNG_METADATA:
            out.append(data[position:end])
        position = end
        if kind == b"IEND":
            break
    return b"".join(out)


def _strip_webp(data: bytes) -> bytes:
    """Drops RIFF chunks and their flags in VP8X (RFC 9649, 2.7)."""
    out = []
    position = 12
    length = min(len(data), 8 + int.from_bytes(data[4:8], "little"))
    while position + 8 <= length:
        kind = data[position : position + 4]
        size = int.from_bytes(data[position + 4 : position + 8], "little")
        end = position + 8 + size + (size & 1)
        chunk = data[position:end]
        if kind == b"VP8X":
            chunk = chunk[:8] + bytes((chunk[8] & ~_WEBP_METADATA_FLAGS,)) + chunk[9:]
        if kind not in _WEBP_METADATA:
            out.append(chunk)
        position = end
    body = b"WEBP" + b"".join(out)
    return b"RIFF" + len(body).to_bytes(4, "little") + body
