"""Checks that the first frame of a GIF is complete. Pillow does not check this.

Source: GIF89a specification.
"""

from __future__ import annotations

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault, words_of

_SCREEN_BYTES, _DESCRIPTOR_BYTES = 13, 10
_EXTENSION, _IMAGE, _TRAILER = 0x21, 0x2C, 0x3B
#: Largest initial code size of a picture, in bits: an index into 256 colors has 8.
_MAX_CODE_BITS = 8


def check_first_frame(data: bytes) -> None:
    """Decodes the first frame with a decoder that reports missing pixels.

    Args:
      data: the whole file.

    Raises:
      ImageFault: if the file or the pixel data ends inside the frame.
    """
    import imagecodecs

    frame, code_bits = _first_frame(data)
    if code_bits > _MAX_CODE_BITS:
        raise ImageFault(
            QuarantineReason.UNSUPPORTED_FORMAT,
            Stage.DECODE,
            f"gif: its codes begin with {code_bits} bits, and the format allows {_MAX_CODE_BITS}; convert it "
            "to PNG",
        )
    try:
        imagecodecs.gif_decode(frame, asrgb=False)
    except imagecodecs.GifError as error:
        words = words_of(error).partition("returned ")[2].strip("'") or words_of(error)
        reason = QuarantineReason.TRUNCATED if "EOF" in words else QuarantineReason.CORRUPT
        raise ImageFault(reason, Stage.DECODE, f"gif: {words}") from error


def _first_frame(data: bytes) -> tuple[bytes, int]:
    """Returns a file with only the first frame, and its initial code size in bits.

    Comments and other extensions are left out. They do not affect the pixels, and the checking decoder
    rejects some that Pillow reads.
    """
    position = _SCREEN_BYTES + _color_table_bytes(data[10])
    head = data[:position]
    while position < len(data):
        kind = data[position]
        if kind == _EXTENSION:
            position = _after_blocks(data, position + 2)
        elif kind == _IMAGE:
            begin = position
            position += _DESCRIPTOR_BYTES + _color_table_bytes(data[begin + 9])
            end = _after_blocks(data, position + 1)
            return head + data[begin:end] + bytes((_TRAILER,)), data[position]
        elif kind == _TRAILER:
            break
        else:
            position += 1  # decoders skip bytes that are not a block
    raise ImageFault(QuarantineReason.TRUNCATED, Stage.DECODE, "gif: it ends before its first frame")


def _color_table_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _after_blocks(data: bytes, position: int) -> int:
    """Returns the position after a chain of sub-blocks and its terminator."""
    while position < len(data):
        size = data[position]
        position += 1 + size
        if size == 0:
            return position
    raise ImageFault(
        QuarantineReason.TRUNCATED, Stage.DECODE, f"gif: it ends after {len(data)} bytes, inside of a frame"
    )
