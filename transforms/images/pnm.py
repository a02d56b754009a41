"""Decodes the kinds of PNM that Pillow decodes sample by sample: text, and unusual highest values.

The pixels are the same as Pillow's. A large picture takes a second instead of minutes, and comments take no
longer than other bytes. Source: Netpbm's pbm(5), pgm(5) and ppm(5).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageFile

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault

#: Number of bytes of text that are read at once.
_BLOCK_BYTES = 1 << 22
_COMMENT = re.compile(rb"#[^\r\n]*(?:[\r\n]|\Z)")
_BLANKS = b" \t\n\r\v\f"
_DIGITS = b"0123456789"
#: The header of a PNM with levels: width, height and the value of white, separated by blanks and comments.
_HEADER = re.compile(rb"P[2356](?:(?=[\s#])\s*(?:#[^\r\n]*[\r\n]\s*)*(\d+)){3}")
_TEXT = (b"P2", b"P3")
#: Number of digits that no number in the format reaches.
_LONG_NUMBER = re.compile(rb"\d{11}")


def load_pnm(image: Image.Image, data: bytes) -> None:
    """Decodes the pixels of a PNM.

    Args:
      image: image that Pillow has opened but not loaded.
      data: the whole file.

    Raises:
      ImageFault: if samples are missing or cannot be read.
    """
    assert isinstance(image, ImageFile.ImageFile)
    tile = image.tile[0]
    if tile.codec_name not in ("ppm", "ppm_plain"):
        image.load()  # in C
        return
    width, height = image.size
    samples = width * height * len(image.getbands())
    if image.mode == "1":
        pixels, raw_mode = _bits(data, tile.offset, samples), "1;8"
    else:
        assert isinstance(tile.args, tuple)
        highest = int(tile.args[-1])
        most = 65535 if image.mode == "I" else 255
        levels = np.arange(highest + 1) / highest * most
        table = np.rint(levels).astype("<u4" if image.mode == "I" else np.uint8)
        read = _numbers if tile.codec_name == "ppm_plain" else _binary
        pixels, raw_mode = (
            read(data, tile.offset, samples, table),
            "I;32" if image.mode == "I" else image.mode,
        )
    image.tile = [ImageFile._Tile("raw", (0, 0, width, height), 0, (raw_mode, 0, 1))]
    image.fp = io.BytesIO(pixels)
    image.load()


def highest_value(data: bytes) -> int:
    """Returns the value of white in a PNM's header; 1 for bits."""
    found = _HEADER.match(data)
    return int(found[1]) if found else 1


def read_samples(image: Image.Image, data: bytes, highest: int) -> np.ndarray:
    """Decodes the samples of a PNM of more than 8 bits as they are in the file.

    Args:
      image: image that Pillow has opened but not loaded.
      data: the whole file.
      highest: value of white; larger samples become white.

    Returns:
      Samples of type uint16, with shape (height, width, channels).

    Raises:
      ImageFault: if samples are missing or cannot be read.
    """
    assert isinstance(image, ImageFile.ImageFile)
    channels = 3 if image.mode == "RGB" else 1
    read = _numbers if data[:2] in _TEXT else _binary
    table = np.arange(highest + 1, dtype=np.uint16)
    pixels = read(data, image.tile[0].offset, image.width * image.height * channels, table)
    return np.frombuffer(pixels, np.uint16).reshape(image.height, image.width, channels)


def _binary(data: bytes, offset: int, samples: int, table: np.ndarray) -> bytes:
    """Scales samples of one or two bytes to the range of Pillow's modes."""
    sample = np.dtype(np.uint8 if len(table) <= 256 else ">u2")
    present = (len(data) - offset) // sample.itemsize
    if present < samples:
        raise _truncated(present, samples)
    values = np.frombuffer(data, sample, samples, offset)
    return bytes(table[np.minimum(values, len(table) - 1)].tobytes())


def _numbers(data: bytes, offset: int, samples: int, table: np.ndarray) -> bytes:
    """Reads samples that are written as decimal numbers."""
    pixels = np.empty(samples, table.dtype)
    found = 0
    for text in _blocks(data, offset):
        if _LONG_NUMBER.search(text) or text.translate(None, _DIGITS + _BLANKS):
            raise _corrupt("a sample is not a number")
        values = np.fromstring(text, np.int64, sep=" ") if text.strip(_BLANKS) else np.empty(0, np.int64)
        values = values[: samples - found]
        if values.size and int(values.max()) >= len(table):
            raise _corrupt(f"a sample is {values.max()}, and {len(table) - 1} is the highest")
        pixels[found : found + values.size] = table[values]
        found += values.size
        if found == samples:
            return pixels.tobytes()
    raise _truncated(found, samples)


def _bits(data: bytes, offset: int, samples: int) -> bytes:
    """Reads black and white pixels, which need no space between them."""
    found = bytearray()
    for text in _blocks(data, offset):
        digits = text.translate(None, _BLANKS)[: samples - len(found)]
        if digits.strip(b"01"):
            raise _corrupt("a pixel is neither 0 nor 1")
        found += digits
        if len(found) == samples:
            return bytes(found).translate(bytes.maketrans(b"01", b"\xff\x00"))
    raise _truncated(len(found), samples)


def _blocks(data: bytes, offset: int) -> Iterator[bytes]:
    """Yields the text without comments, in blocks that end between two numbers."""
    begin = offset
    ends = re.compile(rb"[ \t\n\r\v\f]")
    while begin < len(data):
        blank = ends.search(data, min(begin + _BLOCK_BYTES, len(data)))
        end = blank.start() if blank else len(data)
        comment = data.rfind(b"#", begin, end)
        if comment >= 0 and (closing := _COMMENT.match(data, comment)) and closing.end() > end:
            # The cut is inside a comment, so the block ends after it and after the number that it interrupts.
            blank = ends.search(data, closing.end())
            following = data.find(b"#", closing.end(), blank.start() if blank else len(data))
            end = blank.start() if blank and following < 0 else closing.end()
        yield _COMMENT.sub(b"", data[begin:end])
        begin = end


def _truncated(found: int, samples: int) -> ImageFault:
    message = f"ppm: it has {found} of {samples} samples"
    return ImageFault(QuarantineReason.TRUNCATED, Stage.DECODE, message)


def _corrupt(message: str) -> ImageFault:
    return ImageFault(QuarantineReason.CORRUPT, Stage.DECODE, f"ppm: {message}")
