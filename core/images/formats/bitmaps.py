"""PNM and BMP, whose unusual kinds Pillow decodes in Python, sample by sample.

A PNM of text or of an unusual highest value is decoded here. The pixels are the same as Pillow's. A large
picture takes a second instead of minutes, and comments take no longer than other bytes. The size of a BMP
that is stored as runs is limited. Source: Netpbm's pbm(5), pgm(5) and ppm(5).
"""

from __future__ import annotations

import re

import numpy as np
from PIL import Image, ImageFile

from shardwright.core.images.deep_pixels import UINT16, DeepHeader
from shardwright.core.images.faults import corrupt, truncated
from shardwright.core.images.formats.opened_image import OpenedImage

_COMMENT = re.compile(rb"#[^\r\n]*(?:[\r\n]|\Z)")
_BLANKS = b" \t\n\r\v\f"
_DIGITS = b"0123456789"
_BLANK = rb"(?=[\s#])\s*(?:#[^\r\n]*[\r\n]\s*)*"
#: The header: width and height, and the value of white unless samples are bits.
_HEADER = re.compile(rb"P(?:[14](?:%b\d+){2}|[2356](?:%b(\d+)){3})" % (_BLANK, _BLANK))
_TEXT = (b"P1", b"P2", b"P3")
#: Bytes for each byte of text: two copies, its numbers, and their pixels.
_BYTES_PER_BYTE_OF_TEXT = 7
#: Number of digits that no number in the format reaches.
_LONG_NUMBER = re.compile(rb"\d{11}")
#: Header of a BMP that may hold runs, and the compressions that are runs.
_INFO_BYTES = 40
_RLE8, _RLE4 = 1, 2


class PnmImage(OpenedImage):
    """A PNM."""

    kind = "ppm"
    _plugin = "PPM"
    image: ImageFile.ImageFile

    def _read_header(self, max_pixels: int) -> Image.Image:
        head = self.data[: self.bounds.comments]  # Pillow reads it byte by byte
        match = _HEADER.match(head)
        if (match is None or match.end() == len(head)) and len(head) < len(self.data):
            raise self.bounds.fault("comments", f"ppm: its header has at least {len(head) + 1} bytes")
        if head[:2] in _TEXT:
            self._extra_bytes = _BYTES_PER_BYTE_OF_TEXT * len(self.data)
        image = super()._read_header(max_pixels)
        #: The value of white; 1 for bits.
        self._highest = int(match[1]) if match and match[1] else 1
        return image

    def deep_header(self) -> DeepHeader | None:
        """Returns the samples of a picture whose white is above 255."""
        if self._highest <= 255:
            return None
        return DeepHeader(UINT16, len(self.image.getbands()), self.image.size, self._highest)

    def _load(self) -> Image.Image:
        """Decodes with Pillow what it decodes in C, and the rest here."""
        image = self.image
        tile = image.tile[0]
        if tile.codec_name not in ("ppm", "ppm_plain"):
            return super()._load()
        if image.mode == "1":
            pixels, raw_mode = self._bits(), "1;8"
        else:
            is_wide = image.mode == "I"
            assert isinstance(tile.args, tuple)
            highest = int(tile.args[-1])
            levels = np.arange(highest + 1) / highest * (65535 if is_wide else 255)
            pixels = self._samples(np.rint(levels).astype("<u4" if is_wide else np.uint8)).tobytes()
            raw_mode = "I;32" if is_wide else image.mode
        decoded = Image.frombytes(image.mode, image.size, pixels, "raw", raw_mode)
        decoded.info = image.info
        return decoded

    def _deep_samples(self) -> np.ndarray:
        """Decodes samples of more than 8 bits; those above white become white."""
        return self._samples(np.arange(self._highest + 1, dtype=np.uint16))

    def _samples(self, table: np.ndarray) -> np.ndarray:
        """Returns what a table has for each sample, with shape (height, width, channels)."""
        image, data = self.image, self.data
        offset, highest = image.tile[0].offset, len(table) - 1
        count = image.width * image.height * len(image.getbands())
        if data[:2] in _TEXT:
            text = _COMMENT.sub(b"", data[offset:])
            if _LONG_NUMBER.search(text) or text.translate(None, _DIGITS + _BLANKS):
                raise corrupt("ppm: a sample is not a number")
            values = np.fromstring(text, np.int64, sep=" ") if text.strip(_BLANKS) else np.empty(0, np.int64)
            values = values[:count]
            if values.size and int(values.max()) > highest:
                raise corrupt(f"ppm: a sample is {values.max()}, and {highest} is the highest")
            _check_count(values.size, count)
        else:
            sample = np.dtype(np.uint8 if highest <= 255 else ">u2")
            _check_count((len(data) - offset) // sample.itemsize, count)
            values = np.minimum(np.frombuffer(data, sample, count, offset), highest)
        return table[values].reshape(image.height, image.width, -1)

    def _bits(self) -> bytes:
        """Reads black and white pixels, which need no space between them."""
        image = self.image
        count = image.width * image.height
        digits = _COMMENT.sub(b"", self.data[image.tile[0].offset :]).translate(None, _BLANKS)[:count]
        if digits.strip(b"01"):
            raise corrupt("ppm: a pixel is neither 0 nor 1")
        _check_count(len(digits), count)
        return digits.translate(bytes.maketrans(b"01", b"\xff\x00"))


def _check_count(present: int, count: int) -> None:
    if present < count:
        raise truncated(f"ppm: it has {present} of {count} samples")


class BmpImage(OpenedImage):
    """A BMP."""

    kind = "bmp"
    _plugin = "BMP"

    def _check_content(self) -> None:
        data, bounds = self.data, self.bounds
        header_bytes, compression = (int.from_bytes(data[at : at + 4], "little") for at in (14, 30))
        if header_bytes < _INFO_BYTES or compression not in (_RLE8, _RLE4):
            return
        width, height = self.image.size
        pixels, size = width * height, f"{width} x {height} pixels"
        bounds.check("runs", pixels, f"bmp: {size} as runs are {pixels}")
        bounds.check("columns", width, f"bmp: {size} as runs have {width} columns")
        bounds.check("runs", len(data), f"bmp: its runs take {len(data)} bytes")
        # A command takes two bytes: each pixel may be a run, and each row has an end.
        stray = len(data) - 4 * (width + 1) * (height + 1)
        bounds.check("stray_bytes", stray, f"bmp: its runs take {stray} bytes beyond what {size} can need")
