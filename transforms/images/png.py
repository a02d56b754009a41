"""Checks that the compressed pixels of a PNG are complete. Pillow does not check this.

Pillow compares the checksum of each chunk when it verifies an image, not when it decodes one, and stops
reading when it has all rows. It accepts a zlib stream with a wrong checksum, and one that ends before the
last row. Source: PNG specification (third edition), sections 4.5, 5, 8 and 10.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault, words_of

_SIGNATURE_BYTES = 8
#: Bytes of length, type and checksum of a chunk.
_CHUNK_BYTES = 12
#: Prefix of uncompressed XMP (XMP specification part 3, 1.1.5).
_XMP = b"XML:com.adobe.xmp\0\0\0"
#: Color type -> samples per pixel (11.2.1).
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
#: First column, first row, column step and row step of Adam7's passes (8.2).
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
#: Number of bytes decompressed at once to find the reason that the fast decoder does not give.
_STEP = 1 << 16
#: Largest number of bytes that the fast decoder decompresses; it keeps all of them in memory.
_MAX_AT_ONCE = 1 << 26


@dataclass(frozen=True)
class PngChunks:
    """The contents of a PNG's chunks after its header.

    Attributes:
      pixels: the compressed pixels, one part for each IDAT chunk.
      late_metadata: the `exif` and `xmp` after the pixels, which Pillow has not read yet.
    """

    pixels: Sequence[memoryview]
    late_metadata: dict[str, bytes]


def read_chunks(data: bytes) -> PngChunks:
    """Reads the chunks of a PNG and compares the checksums of its pixel data.

    Args:
      data: the whole file.

    Raises:
      ImageFault: if a checksum is wrong.
    """
    view = memoryview(data)
    position = _SIGNATURE_BYTES
    pixels: list[memoryview] = []
    late: dict[str, bytes] = {}
    while position + _CHUNK_BYTES <= len(data):
        size = int.from_bytes(view[position : position + 4], "big")
        end = position + _CHUNK_BYTES + size
        if end > len(data):
            break  # truncated: the decoder reports it
        kind = bytes(view[position + 4 : position + 8])
        if kind == b"IEND":
            break
        if pixels and kind == b"eXIf":
            late["exif"] = b"Exif\0\0" + bytes(view[position + 8 : end - 4])
        elif pixels and kind == b"iTXt":
            content = bytes(view[position + 8 : end - 4])
            if content.startswith(_XMP):
                late["xmp"] = content[len(_XMP) :].rpartition(b"\0")[2]
        if kind == b"IDAT":
            stored = int.from_bytes(view[end - 4 : end], "big")
            if zlib.crc32(view[position + 4 : end - 4]) != stored:
                raise _corrupt(f"the checksum of the pixel data at byte {position} is wrong")
            pixels.append(view[position + 8 : end - 4])
        position = end
    return PngChunks(pixels, late)


def pixel_bytes(header: bytes) -> int:
    """Returns the number of bytes of a PNG's decompressed pixels, including one filter byte per row.

    Args:
      header: the first 29 bytes of the file, up to the end of IHDR's fields.
    """
    width, height = int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")
    depth, color, interlaced = header[24], header[25], header[28]
    bits = depth * _SAMPLES[color]
    passes = _ADAM7 if interlaced else ((0, 0, 1, 1),)
    total = 0
    for left, top, column_step, row_step in passes:
        columns = -(-(width - left) // column_step)
        rows = -(-(height - top) // row_step)
        if columns > 0 and rows > 0:
            total += rows * (1 + -(-columns * bits // 8))
    return total


def check_pixels(pixels: Sequence[memoryview], wanted: int) -> None:
    """Decompresses the pixels of a PNG and compares their number and checksum.

    Args:
      pixels: the pixels in `PngChunks`.
      wanted: expected number of decompressed bytes (`pixel_bytes`).

    Raises:
      ImageFault: if rows are missing or the checksum is wrong.
    """
    import imagecodecs

    stream = b"".join(pixels)
    if wanted > _MAX_AT_ONCE:
        decompressed = _inflated_bytes(stream, wanted)
        _check_rows(decompressed, wanted)
        return
    try:
        decompressed = len(imagecodecs.deflate_decode(stream, out=wanted))
    except imagecodecs.DeflateError:
        decompressed = _inflated_bytes(stream, wanted)
    _check_rows(decompressed, wanted)


def _check_rows(decompressed: int, wanted: int) -> None:
    if decompressed < wanted:
        raise ImageFault(
            QuarantineReason.TRUNCATED,
            Stage.DECODE,
            f"png: its pixels are {decompressed} bytes instead of {wanted}: rows are missing",
        )


def _inflated_bytes(stream: bytes, wanted: int) -> int:
    """Returns the number of bytes in a zlib stream and compares its checksum; extra bytes are not a fault."""
    inflater = zlib.decompressobj()
    total, rest = 0, stream
    try:
        while rest and not inflater.eof:
            total += len(inflater.decompress(rest, _STEP))
            rest = inflater.unconsumed_tail
            if total > wanted + _STEP:
                return total
    except zlib.error as error:
        raise _corrupt(
            f"its compressed pixels are damaged after {total} of {wanted} bytes: {words_of(error)}"
        ) from error
    return total


def _corrupt(message: str) -> ImageFault:
    return ImageFault(QuarantineReason.CORRUPT, Stage.DECODE, f"png: {message}")
