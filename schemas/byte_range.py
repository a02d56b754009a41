"""`ByteRange`: the part of a file that contains an image."""

from __future__ import annotations

import json
from typing import NamedTuple

#: How the bytes of a part are stored.
STORED, DEFLATE, BZIP2, LZMA, PIXELS = "stored", "deflate", "bzip2", "lzma", "pixels"
#: An image file's bytes as URL-safe base64.
BASE64 = "base64"
#: Bare pixels as URL-safe base64, and as the packed varints of a protobuf's list of numbers.
BASE64_PIXELS, VARINT_PIXELS = "base64_pixels", "varint_pixels"
#: The methods whose bytes are pixels instead of an image file.
BARE_PIXELS = (PIXELS, BASE64_PIXELS, VARINT_PIXELS)


class ByteRange(NamedTuple):
    """A part of a file.

    Attributes:
      file: the file with the bytes where it is not the reference's own (a spool file), else empty.
      offset: where the part begins, or the local header of a zip's member.
      length: of its bytes as they are stored.
      method: stored, base64, deflate, bzip2, lzma, or pixels (bare ones, of the shape below; also as base64
        or varints).
      file_size: bytes of the file when it was listed; -1 when unknown.
      file_version: the mark of the file's state when it was listed; empty when unknown.
      name: of a zip's member in its local header (a surrogate escape for each undecodable byte), in
        whose case `offset` is that header's; None for bytes that begin at `offset`.
      crc32: of the unpacked bytes; -1 when unknown.
      shape: (height, width, channels) of bare pixels.
      planar: whether bare pixels stand channel by channel.
      dtype: NumPy's name of the type of bare pixels, with its byte order.
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
    planar: bool = False
    dtype: str = "|u1"

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
