"""TIFF: Pillow opens what it can hold; other samples are read as they are.

Sources: TIFF 6.0; Pillow's names of compressions (`COMPRESSION_INFO`).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, TiffImagePlugin, UnidentifiedImageError
from PIL.ExifTags import Base

from shardwright.core.images import deep_pixels
from shardwright.core.images.deep_pixels import FLOAT32, UINT8, UINT16, DeepHeader
from shardwright.core.images.faults import PillowSettings, unsupported
from shardwright.core.images.formats.opened_image import (
    ORIENTATIONS,
    MetadataBlock,
    OpenedImage,
    OpenOptions,
    check_size,
    without_pixels,
)
from shardwright.core.images.formats.tiff_pixels import Tags, all_numbers, load_tiff, read_samples
from shardwright.core.images.formats.tiff_tags import check_tags
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import ImageFault

_BIG_TIFF = 43
#: Values of SampleFormat. The last one means unknown, which everybody reads as unsigned.
_UNSIGNED, _SIGNED, _FLOAT, _UNKNOWN = 1, 2, 3, 4
_WHITE_IS_ZERO = 0
#: PhotometricInterpretation -> number of color channels: gray (twice), RGB, CMYK.
_COLOR_CHANNELS = {_WHITE_IS_ZERO: 1, 1: 1, 2: 3, 5: 4}
_CMYK = 5
_PREMULTIPLIED, _STRAIGHT = 1, 2


@dataclass(frozen=True, kw_only=True)
class TiffHeader(DeepHeader):
    """The samples of a TIFF, known before it is decoded.

    Attributes:
      source_dtype: NumPy's type of the samples in the file, such as i2 or f8; of 9 to 15 bits, u2.
      tags: Directory of the first picture.
      compression: Pillow's name of the compression.
      segment_pixels: Number of pixels of a strip or tile.
      orientation: Orientation of the picture in the file, 1 to 8.
    """

    source_dtype: str
    tags: Tags
    compression: str
    segment_pixels: int
    orientation: int

    @property
    def sample_bytes(self) -> int:
        """Bytes of a sample in the file."""
        return int(self.source_dtype[1:])

    @property
    def sample_type(self) -> str:
        """Type of a sample in the file, for messages: `64-bit float`."""
        name = {"f": "float", "i": "signed integer"}.get(self.source_dtype[:1], "integer")
        return f"{self.highest.bit_length() if name == 'integer' else 8 * self.sample_bytes}-bit {name}"

    @property
    def has_whole_range(self) -> bool:
        """Whether samples have 16 bits, also signed ones, and do not use fewer."""
        return self.source_dtype == "i2" or super().has_whole_range

    @property
    def decoded_bytes(self) -> int:
        """Largest number of bytes that decoding takes: all rows twice, and two strips or tiles."""
        return super().decoded_bytes + 2 * self.segment_pixels * self.channels * self.sample_bytes


class TiffImage(OpenedImage):
    """A TIFF that Pillow opens."""

    kind = "tiff"
    _plugin = "TIFF"
    _turned_by_decoder = True
    image: TiffImagePlugin.TiffImageFile

    @classmethod
    def open(cls, data: bytes, options: OpenOptions) -> OpenedImage:
        """Opens a file, and refuses one whose samples have a type or meaning that Pillow does not read."""
        if options.keep_depth or options.all_channels:
            header = _read_header(data, options).with_white(options.white)
            if options.all_channels or header.dtype != UINT8:
                return TiffSamples(data, options, header)
        try:
            with PillowSettings(options.max_pixels, "tiff"):
                opened = cls(data, options)
        except ImageFault as fault:
            if fault.reason is QuarantineReason.CORRUPT:
                unidentified = isinstance(fault.__context__, UnidentifiedImageError)
                _refuse_other_samples(data, options, unidentified)
            raise
        if int(opened.image.tag_v2.get(Base.SamplesPerPixel, 1)) > 1 and len(opened.image.getbands()) == 1:
            # Pillow opened only the first of several channels, as it does with planes of gray.
            _refuse_other_samples(data, options, unidentified=True)
        return _with_white(opened, options) if options.white and not options.keep_depth else opened

    def _read_header(self, max_pixels: int) -> Any:
        check_tags(self.data, "tiff", self.bounds)
        return super()._read_header(max_pixels)

    def _is_animated(self) -> bool:
        try:
            try:
                self.image.seek(1)
            finally:
                self.image.seek(0)
        except MemoryError:
            raise
        except Exception:  # only the first frame is used
            return False
        return True

    def decoder_bytes(self) -> int:
        """Counts also what `tiff_pixels` holds: all rows, and a strip or tile, which may be larger."""
        width, height = self.image.size
        bits = self._number(Base.BitsPerSample, 1) * self._number(Base.SamplesPerPixel, 1)
        rows = min(self._number(Base.RowsPerStrip, height), height)
        tile = self._number(Base.TileWidth, width) * self._number(Base.TileLength, rows) * bits // 8
        return super().decoder_bytes() + width * height * bits // 8 + 2 * tile

    def _number(self, tag: int, default: int) -> int:
        return max(all_numbers(self.image.tag_v2.get(tag, default)))

    def _load(self, is_damaged: bool) -> Image.Image:
        """Decompresses the strips or tiles, which Pillow then reads."""
        load_tiff(self.image, self.data, self.bounds)
        return self.image

    @staticmethod
    def metadata(data: bytes) -> Iterator[MetadataBlock]:
        """Yields the file itself: EXIF has its structure."""
        yield MetadataBlock("exif", data)


class TiffSamples(OpenedImage):
    """A TIFF whose samples Pillow does not hold: its picture has a size, but no pixels."""

    kind = "tiff"
    _bytes_per_pixel = 0  # only the samples

    def __init__(self, data: bytes, options: OpenOptions, header: TiffHeader) -> None:
        self.data = data
        self.bounds = options.bounds
        self.image = without_pixels(header.size, "F")
        self.size = header.size
        self.orientation = 1
        self.animated = header.tags.next > 0
        self.deep = header
        self._header = header

    def read_samples(self, header: DeepHeader) -> np.ndarray:
        """Decodes all samples, upright."""
        own = self._header
        samples = read_samples(own.tags, own.compression, self.data, self.bounds).view(own.source_dtype)
        if own.dtype == FLOAT32:
            with np.errstate(over="ignore", invalid="ignore"):  # 64-bit numbers beyond the range are infinite
                samples = samples.astype(np.float32, copy=False)
        return deep_pixels.upright(samples, own.orientation)


def _with_white(opened: TiffImage, options: OpenOptions) -> OpenedImage:
    """Returns a TIFF that Pillow opened, with its own samples if they have 16 bits.

    Raises:
      ImageFault: If its channels are neither gray nor RGB.
    """
    try:
        header = _read_header(opened.data, options)
    except ImageFault:
        return opened  # samples of a type that only Pillow reads
    if not header.has_whole_range:
        return opened
    if header.problem:
        raise unsupported(header.problem)
    own = TiffSamples(opened.data, options, header)
    own.deep, own.scaled = None, header.with_white(options.white)
    return own


def _refuse_other_samples(data: bytes, options: OpenOptions, unidentified: bool) -> None:
    """Raises the fault of a sound TIFF whose samples have a type or meaning that Pillow does not read.

    Args:
      data: The whole file.
      options: How it is opened.
      unidentified: Whether Pillow knows no mode for the samples.
    """
    try:
        header = _read_header(data, options)
    except ImageFault as fault:
        if fault.reason is QuarantineReason.UNSUPPORTED_FORMAT:
            raise
        return  # it is damaged, as Pillow says
    problem = header.problem
    if not problem and unidentified and (header.dtype != UINT8 or header.channels not in (1, 3)):
        option = "--depth keep" if header.dtype != UINT8 else f"--channels {header.channels}"
        problem = f"tiff: pixels of {header.channels} x {header.sample_type} are only read with {option}"
    if problem:
        raise unsupported(problem) from None


def _read_header(data: bytes, options: OpenOptions) -> TiffHeader:
    """Reads the first directory of a TIFF.

    Raises:
      ImageFault: If it is damaged or too large, or the samples have a type that is not read.
    """
    with PillowSettings(options.max_pixels, "tiff"):
        check_tags(data, "tiff", options.bounds)
        header = _header_of(_first_directory(data))
        check_size(header.size, options.max_pixels)
        return header


def _first_directory(data: bytes) -> Tags:
    file = io.BytesIO(data)
    head = file.read(8)
    if _BIG_TIFF in (head[2], head[3]):
        head += file.read(8)
    tags = TiffImagePlugin.ImageFileDirectory_v2(head)
    file.seek(tags.next)
    tags.load(file)
    return tags


def _header_of(tags: Tags) -> TiffHeader:
    """Returns what a directory says about the samples.

    Raises:
      ImageFault: If the samples have a type that is not read.
      SyntaxError, KeyError and others: If it is damaged.
    """
    width, height = int(tags[Base.ImageWidth]), int(tags[Base.ImageLength])
    orientation = tags.get(Base.Orientation, 1)
    if orientation not in ORIENTATIONS:
        orientation = 1
    bits, formats = (
        set(all_numbers(tags.get(Base.BitsPerSample, 1))),
        set(all_numbers(tags.get(Base.SampleFormat, 1))),
    )
    samples = int(tags.get(Base.SamplesPerPixel, 1))
    if len(bits) != 1 or len(formats) != 1 or samples < 1:
        raise _unsupported(f"samples of {sorted(bits)} bits with sample format {sorted(formats)}")
    dtype, source, highest = _types(bits.pop(), formats.pop())
    photometric = int(tags.get(Base.PhotometricInterpretation, -1))
    compression = tags.get(Base.Compression, 1)
    profile = tags.get(Base.InterColorProfile, b"")
    rows = min(int(tags.get(Base.RowsPerStrip, height)), height)
    alpha, problem = _meaning(photometric, samples, all_numbers(tags.get(Base.ExtraSamples, ())), dtype)
    return TiffHeader(
        dtype=dtype,
        channels=samples,
        size=(height, width) if orientation > 4 else (width, height),
        highest=highest,
        alpha=alpha,
        inverted=photometric == _WHITE_IS_ZERO and dtype != FLOAT32,
        cmyk=photometric == _CMYK,
        profile=profile if isinstance(profile, bytes) else b"",
        problem=problem,
        source_dtype=source,
        tags=tags,
        compression=str(TiffImagePlugin.COMPRESSION_INFO.get(compression, f"unknown ({compression})")),
        segment_pixels=int(tags.get(Base.TileWidth, width)) * int(tags.get(Base.TileLength, rows)),
        orientation=orientation,
    )


def _types(bits: int, sample_format: int) -> tuple[str, str, int]:
    """Returns the kept type of a TIFF's samples, their type in the file, and the value of white.

    Raises:
      ImageFault: If no kept type holds all their values.
    """
    if sample_format == _FLOAT and bits in (16, 32, 64):
        return FLOAT32, f"f{bits // 8}", 1
    if sample_format == _SIGNED and bits == 16:
        return FLOAT32, "i2", 32767
    if sample_format in (_UNSIGNED, _UNKNOWN) and 1 <= bits <= 16:
        return (UINT16, "u2", (1 << bits) - 1) if bits > 8 else (UINT8, "u1", (1 << bits) - 1)
    kind = {_SIGNED: "signed integers", _FLOAT: "floating-point numbers"}.get(sample_format, "integers")
    raise _unsupported(f"samples that are {kind} of {bits} bits")


def _meaning(photometric: int, samples: int, extra: tuple[int, ...], dtype: str) -> tuple[str, str]:
    """Returns the kind of alpha, and why the channels are neither gray nor RGB (empty if they are)."""
    colors = _COLOR_CHANNELS.get(photometric)
    if colors is None or samples < colors or (colors == 4 and dtype == FLOAT32):
        return "", f"{dtype} pixels of color space {photometric} cannot be read"
    if samples == colors:
        return "", ""
    # Without the tag, the fourth channel of RGB is alpha, as other programs read it.
    kind = extra[0] if extra else _STRAIGHT if samples == 4 else 0
    if samples == colors + 1 and kind in (_PREMULTIPLIED, _STRAIGHT) and colors != 4 and dtype != FLOAT32:
        return ("premultiplied" if kind == _PREMULTIPLIED else "straight"), ""
    return "", f"it has {samples} channels that are not gray or RGB; keep them with --channels {samples}"


def _unsupported(what: str) -> ImageFault:
    return unsupported(
        f"tiff: {what} cannot be kept; convert them to integers of 8 or 16 bits or to 32-bit floats"
    )
