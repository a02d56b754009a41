"""Removes metadata from encoded images without touching their pixels."""

from __future__ import annotations

from shardwright.core.images.formats import format_of


def strip_metadata(data: bytes, kind: str) -> bytes:
    """Removes EXIF, GPS, XMP, text and comments from an encoded image; its pixels do not change.

    Data that a decoder needs (color profile, Adobe marker, gamma) stays.

    Args:
      data: Bytes of the whole file, which can be decoded.
      kind: jpeg, png or webp; other formats are returned unchanged.
    """
    return format_of(kind).without_metadata(data)
