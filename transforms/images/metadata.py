"""Removes metadata from encoded images without touching their pixels."""

from __future__ import annotations

#: JPEG segments that only describe: EXIF and XMP (APP1), Photoshop and IPTC (APP13), comments.
_JPEG_METADATA = frozenset((0xE1, 0xED, 0xFE))
_PNG_METADATA = frozenset((b"eXIf", b"tEXt", b"zTXt", b"iTXt", b"tIME"))
_WEBP_METADATA = frozenset((b"EXIF", b"XMP "))
_WEBP_METADATA_FLAGS = 0x08 | 0x04


def strip_metadata(data: bytes, kind: str) -> bytes:
    """Returns an encoded image without EXIF, GPS, XMP, text and comments; pixels stay as they are.

    What a decoder needs (colour profile, Adobe marker, gamma) stays.

    Args:
      data: the whole file, decodable.
      kind: jpeg, png or webp; anything else is returned unchanged.
    """
    if kind == "jpeg":
        return _strip_jpeg(data)
    if kind == "png":
        return _strip_png(data)
    return _strip_webp(data) if kind == "webp" else data


def _strip_jpeg(data: bytes) -> bytes:
    """Drops marker segments before the first scan (ITU-T T.81, B.1.1)."""
    out = [data[:2]]
    position = 2
    while position + 4 <= len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
            continue
        if marker == 0xDA:  # start of scan: the rest is the picture
            break
        end = position + 2
        if not (marker == 0x01 or 0xD0 <= marker <= 0xD7):
            end += int.from_bytes(data[position + 2 : position + 4], "big")
        if marker not in _JPEG_METADATA:
            out.append(data[position:end])
        position = end
    out.append(data[position:])
    return b"".join(out)


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
    while position + 8 <= len(data):
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
