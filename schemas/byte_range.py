"""`ByteRange`: the part of a file that contains an image."""

from __future__ import annotations

import json
from typing import NamedTuple

#: How the bytes of a part are stored.
STORED, DEFLATE, BZIP2, LZMA, PIXELS = "stored", "deflate", "bzip2", "lzma", "pixels"
#: An image file's bytes as URL-safe base64.
BASE64 = "base64"
#: Raw pixels as URL-safe base64, and as the packed varints of a protobuf's list of numbers.
BASE64_PIXELS, VARINT_PIXELS = "base64_pixels", "varint_pixels"
#: The methods whose bytes are pixels instead of an image file.
BARE_PIXELS = (PIXELS, BASE64_PIXELS, VARINT_PIXELS)


class ByteRange(NamedTuple):
    """A part of a file.

    Attributes:
      file: The file with the bytes if it is not the reference's own file (a spool file), else empty.
      offset: Where the bytes begin; for a member of a zip, where its local header begins.
      length: Number of bytes, as they are stored.
      method: Stored, base64, deflate, bzip2, lzma, or pixels (raw pixels of the shape below; also as base64
        or varints).
      file_size: Size of the file in bytes when it was listed; -1 if unknown.
      file_version: Version of the file when it was listed; empty if unknown.
      name: Name of a zip's member in its local header (a surrogate escape for each undecodable byte); None if
        the bytes begin at `offset`.
      crc32: Checksum of the unpacked bytes; -1 if unknown.
      shape: (height, width, channels) of raw pixels.
      planar: Whether raw pixels are stored channel by channel; None if that is unknown.
      dtype: NumPy's name of the type of raw pixels, with its byte order.
      keep: Whether raw pixels keep their type and all channels (`--depth keep`, `--channels`, `--white`).
    """

    file: str
    offset: int
    length: int
    method: str = STORED
    file_size: int = -1
    file_version: str = ""
    name: str | None = None
    crc32: int = -1
    shape: tuple[int, ...] = ()
    planar: bool | None = False
    dtype: str = "|u1"
    keep: bool = False

    def encode(self) -> str:
        """Returns the range as an `ImageRef` carries it, without default values at its end."""
        values = list(self)
        while len(values) > 3 and values[-1] == _DEFAULTS[len(values) - 1]:
            values.pop()
        return json.dumps(values, separators=(",", ":"))


def decode_place(text: str) -> ByteRange:
    """Reads the result of `ByteRange.encode`."""
    values = json.loads(text)
    if len(values) > _SHAPE:
        values[_SHAPE] = tuple(values[_SHAPE])
    return ByteRange(*values)


_DEFAULTS = (None, None, None, *ByteRange._field_defaults.values())
_SHAPE = ByteRange._fields.index("shape")
