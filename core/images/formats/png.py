"""PNG: checks that the compressed pixels are complete, which Pillow does not check.

Pillow compares the checksum of each chunk when it verifies an image, not when it decodes one, and stops
reading when it has all rows. It accepts a zlib stream with a wrong checksum, and one that ends before the
last row. Source: PNG specification (third edition), sections 4.5, 5, 8, 10 and 11.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import islice

import numpy as np
from PIL import Image

from shardwright.core.images.deep_pixels import UINT16, DeepHeader
from shardwright.core.images.faults import corrupt, truncated
from shardwright.core.images.formats.containers import check_chunks, chunks
from shardwright.core.images.formats.opened_image import MetadataBlock, OpenedImage
from shardwright.schemas.errors import words_of

_SIGNATURE_BYTES = 8
#: Positions of fields of the header (11.2.1).
_WIDTH, _HEIGHT, _DEPTH, _COLOR, _INTERLACED = 16, 20, 24, 25, 28
#: Keyword of XMP (XMP specification part 3, 1.1.5), and the bytes before XMP that is not compressed.
_XMP = b"XML:com.adobe.xmp"
_PLAIN_XMP = _XMP + b"\0\0\0"
#: Color type -> samples per pixel (11.2.1).
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
#: First column, first row, column step and row step of Adam7's passes (8.2).
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
#: Number of bytes that are decompressed at once, to at most a thousand times as many.
_STEP = 1 << 14
#: Chunks that only describe the picture.
_METADATA = frozenset((b"eXIf", b"tEXt", b"zTXt", b"iTXt", b"tIME"))
_TEXTS = frozenset((b"tEXt", b"zTXt", b"iTXt"))
_AUTHORS = (b"Author", b"Artist")
_PROFILE = b"Raw profile type "
_EXIF = b"Exif\0\0"
#: Most chunks and texts in which metadata is looked for, and largest text that is decompressed.
_MAX_CHUNKS, _MAX_TEXTS, _MAX_TEXT = 100_000, 64, 4_000_000


class PngImage(OpenedImage):
    """A PNG."""

    kind = "png"
    storable = True
    _plugin = "PNG"

    def _read_header(self, max_pixels: int) -> Image.Image:
        check_chunks(self.data, "png", self.bounds)
        image = super()._read_header(max_pixels)
        self.depth = self.data[_DEPTH]
        return image

    def _check_content(self) -> None:
        """Compares the checksums of the pixels, and reads the metadata behind them as Pillow will."""
        view = memoryview(self.data)
        pixels: list[memoryview] = []
        for chunk in chunks(self.data, "png"):
            if chunk.end > len(self.data) or chunk.type == b"IEND":
                break  # if it is truncated, the decoder reports it
            if pixels and chunk.type == b"eXIf":
                self.image.info.setdefault("exif", _EXIF + self.data[chunk.content])
            elif pixels and chunk.type == b"iTXt" and self.data[chunk.content].startswith(_PLAIN_XMP):
                xmp = self.data[chunk.content][len(_PLAIN_XMP) :].rpartition(b"\0")[2]
                self.image.info.setdefault("xmp", xmp)
            elif chunk.type == b"IDAT":
                stored = int.from_bytes(view[chunk.content.stop : chunk.end], "big")
                if zlib.crc32(view[chunk.begin + 4 : chunk.content.stop]) != stored:
                    raise corrupt(f"png: the checksum of the pixel data at byte {chunk.begin} is wrong")
                pixels.append(view[chunk.content])
        self._pixels = pixels

    def deep_header(self) -> DeepHeader | None:
        """Returns the samples of a PNG with 16 bits per channel."""
        if self.depth != 16:
            return None
        channels = _SAMPLES[self.data[_COLOR]]  # Pillow opens no palette of 16 bits
        names_color = "transparency" in self.image.info
        channels += names_color and channels in (1, 3)
        return DeepHeader(UINT16, channels, self.image.size, alpha="straight" if channels in (2, 4) else "")

    def _check_pixels(self) -> None:
        """Decompresses the pixels, and compares their number and checksum; extra bytes are not a fault."""
        expected, stream = _pixel_bytes(self.data), memoryview(b"".join(self._pixels))
        inflater, total = zlib.decompressobj(), 0
        try:
            for begin in range(0, len(stream), _STEP):
                total += len(inflater.decompress(stream[begin : begin + _STEP]))
                if inflater.eof or total > expected + _STEP:
                    break
        except zlib.error as error:
            raise corrupt(
                f"png: its compressed pixels are damaged after {total} of {expected} bytes: {words_of(error)}"
            ) from error
        if total < expected:
            raise truncated(f"png: its pixels are {total} bytes instead of {expected}: rows are missing")

    def _load(self) -> Image.Image:
        """Decodes the pixels, and scales the transparent color to their depth.

        Pillow leaves it in the depth of the file. Pillow decodes only the upper bytes of 16-bit RGB, so all
        colors with the same upper bytes become transparent too.
        """
        self.image.load()
        info, depth = self.image.info, self.depth
        key = info.get("transparency")
        if isinstance(key, str):  # a text chunk of the same name
            del info["transparency"]
        elif isinstance(key, int) and self.image.mode == "L" and depth < 8:
            info["transparency"] = (key & (1 << depth) - 1) * (255 // ((1 << depth) - 1))
        elif isinstance(key, tuple) and depth == 16:
            info["transparency"] = tuple(value >> 8 for value in key)
        return self.image

    def _deep_samples(self) -> np.ndarray:
        """Decodes 16 bits with imagecodecs; Pillow would return 8."""
        import imagecodecs

        self._check_pixels()
        try:
            return np.asarray(imagecodecs.png_decode(self.data))
        except imagecodecs.PngError as error:
            raise corrupt("png: " + words_of(error)) from error

    @staticmethod
    def without_metadata(data: bytes) -> bytes:
        """Drops ancillary chunks (5.3)."""
        out = [data[:_SIGNATURE_BYTES]]
        for chunk in chunks(data, "png"):
            if chunk.type not in _METADATA:
                out.append(data[chunk.begin : chunk.end])
            if chunk.type == b"IEND":
                break
        return b"".join(out)

    @staticmethod
    def metadata(data: bytes) -> Iterator[MetadataBlock]:
        """Yields EXIF, and what texts hold."""
        texts = 0
        for chunk in islice(chunks(data, "png"), _MAX_CHUNKS):
            if texts > _MAX_TEXTS:
                return
            if chunk.type == b"eXIf":
                yield MetadataBlock("exif", data[chunk.content])
            elif chunk.type in _TEXTS:
                texts += 1
                yield from _metadata_in_text(chunk.type, data[chunk.content])


def _metadata_in_text(kind: bytes, content: bytes) -> Iterator[MetadataBlock]:
    """Yields the metadata in a text: XMP, an author, or a profile that ImageMagick stores in hexadecimal."""
    keyword, _, text = content.partition(b"\0")
    compressed = kind == b"zTXt"
    if kind == b"iTXt":
        compressed, text = text[:1] == b"\1", [*text[2:].split(b"\0", 2), b"", b"", b""][2]
    elif compressed:
        text = text[1:]
    if compressed:
        try:
            text = zlib.decompressobj().decompress(text, _MAX_TEXT)
        except zlib.error:
            return
    if keyword in _AUTHORS:
        yield MetadataBlock("author", text)
    elif keyword == _XMP:
        yield MetadataBlock("xmp", text)
    elif keyword.startswith(_PROFILE):
        words = text.split(None, 2)
        try:
            profile = bytes.fromhex(words[2].decode("ascii")) if len(words) > 2 else b""
        except ValueError:
            return
        if keyword.endswith(b"iptc"):
            yield MetadataBlock("iptc", profile)
        elif profile.startswith(_EXIF):
            yield MetadataBlock("exif", profile.removeprefix(_EXIF))
        else:
            yield MetadataBlock("xmp", profile)


def _pixel_bytes(data: bytes) -> int:
    """Returns the number of bytes of a PNG's decompressed pixels, including one filter byte per row."""
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (_WIDTH, _HEIGHT))
    bits = data[_DEPTH] * _SAMPLES[data[_COLOR]]
    passes = _ADAM7 if data[_INTERLACED] else ((0, 0, 1, 1),)
    total = 0
    for left, top, column_step, row_step in passes:
        columns = -(-(width - left) // column_step)
        rows = -(-(height - top) // row_step)
        if columns > 0 and rows > 0:
            total += rows * (1 + -(-columns * bits // 8))
    return total
