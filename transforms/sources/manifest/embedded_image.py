"""`EmbeddedImage`: an image in a row of a table."""

from __future__ import annotations

from typing import NamedTuple


class EmbeddedImage(NamedTuple):
    """An image whose bytes are in the row itself, in the place of its path.

    Attributes:
      place: Part of the file with the bytes (`ByteRange.encode`); empty if they cannot be read.
      size: Number of bytes of the image; -1 if unknown.
      version: Digest of the bytes; empty if unknown.
      reason: Why they cannot be read; empty if they can.
      message: One sentence about that.
    """

    place: str
    size: int = -1
    version: str = ""
    reason: str = ""
    message: str = ""
