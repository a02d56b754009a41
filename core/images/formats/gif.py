"""GIF: checks that the first frame is complete, which Pillow does not check.

Source: GIF89a specification.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from PIL import Image

from shardwright.core.images.faults import corrupt, truncated, unsupported
from shardwright.core.images.formats.opened_image import OpenedImage
from shardwright.schemas.bounds import NO_BOUNDS, Bounds
from shardwright.schemas.errors import words_of

_SCREEN_BYTES, _DESCRIPTOR_BYTES = 13, 10
_IMAGE, _TRAILER, _COMMENT = 0x2C, 0x3B, 0xFE
_INTRODUCER = re.compile(rb"[!,;]")
#: Largest initial code size of a picture, in bits: an index into 256 colors has 8.
_MAX_CODE_BITS = 8
#: Bound -> what it counts.
_WORDS = {
    "blocks": "blocks of pixels",
    "comment_blocks": "blocks of comments",
    "extension_blocks": "blocks of extensions that are not comments",
}


class Block(NamedTuple):
    """A frame or an extension of a GIF: a head and a chain of sub-blocks.

    Attributes:
      is_frame: Whether it is a frame.
      begin: Position of its introducer.
      chain: Position of its first sub-block.
      end: Position after its last sub-block.
      complete: Whether the chain has its terminator.
    """

    is_frame: bool
    begin: int
    chain: int
    end: int
    complete: bool


def blocks(data: bytes, bounds: Bounds = NO_BOUNDS) -> Iterator[Block]:
    """Yields the frames and extensions, also of a damaged file.

    Args:
      data: The whole file.
      bounds: Limits on the sub-blocks, and on the bytes between blocks.

    Raises:
      ImageFault: If there are too many.
    """
    if len(data) < _SCREEN_BYTES:
        return
    position = _SCREEN_BYTES + _color_table_bytes(data[10])
    counts: Counter[str] = Counter()
    stray = 0
    while match := _INTRODUCER.search(data, position):
        begin = match.start()
        stray += begin - position  # decoders skip bytes that are not a block
        bounds.check("stray_bytes", stray, f"gif: it has at least {stray} bytes between its blocks")
        if data[begin] == _TRAILER or begin + _DESCRIPTOR_BYTES >= len(data):
            return
        chain, name = begin + 2, "extension_blocks"
        is_frame = data[begin] == _IMAGE
        if is_frame:
            chain, name = begin + _DESCRIPTOR_BYTES + _color_table_bytes(data[begin + 9]) + 1, "blocks"
            counts[name] = 0
        elif data[begin + 1] == _COMMENT:
            name = "comment_blocks"
        position, size, most = chain, -1, getattr(bounds, name)
        while position < len(data) and size:
            counts[name] += 1
            if counts[name] > most:
                raise bounds.fault(name, f"gif: it has at least {counts[name]} {_WORDS[name]}")
            size = data[position]
            position += 1 + size
        yield Block(is_frame, begin, chain, position, not size)


def _color_table_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


class GifImage(OpenedImage):
    """A GIF."""

    kind = "gif"
    _plugin = "GIF"

    def _read_header(self, max_pixels: int) -> Image.Image:
        frames = 0
        for block in blocks(self.data, self.bounds):
            frames += block.is_frame
            if frames == 2:
                break  # Pillow looks for it, but does not decode it
        return super()._read_header(max_pixels)

    def _check_pixels(self) -> None:
        """Decodes the first frame with a decoder that reports missing pixels.

        Comments and other extensions are left out. They do not affect the pixels, and the checking decoder
        rejects some that Pillow reads.
        """
        import imagecodecs

        data = self.data
        frame = next((block for block in blocks(data) if block.is_frame or not block.complete), None)
        if frame is None or not frame.complete:
            raise truncated(f"gif: it ends after {len(data)} bytes, inside of a frame")
        code_bits = data[frame.chain - 1]
        if code_bits > _MAX_CODE_BITS:
            raise unsupported(
                f"gif: its codes begin with {code_bits} bits, and the format allows {_MAX_CODE_BITS}; "
                "convert it to PNG"
            )
        head = data[: _SCREEN_BYTES + _color_table_bytes(data[10])]
        try:
            imagecodecs.gif_decode(head + data[frame.begin : frame.end] + bytes((_TRAILER,)), asrgb=False)
        except imagecodecs.GifError as error:
            words = words_of(error).partition("returned ")[2].strip("'") or words_of(error)
            raise (truncated if "EOF" in words else corrupt)(f"gif: {words}") from error
