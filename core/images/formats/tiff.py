"""TIFF: Pillow opens what it can hold; other samples are read as they are. No byte of the pixels is invented.

Pillow passes compressed TIFFs to libtiff. A codec that fills only a part of a strip leaves the rest as
`malloc` returned it, and Pillow returns that memory as pixels. Here, each strip or tile is decompressed by a
codec that reports how much it decoded, and missing data is a fault. Pillow then reads the result as an
uncompressed image, so Pillow still handles colors, palettes and orientation.

Sources: TIFF 6.0; its supplement for Deflate and predictors; Pillow's names of compressions
(`COMPRESSION_INFO`).
"""

from __future__ import annotations

import io
import lzma
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import simplejpeg
from PIL import Image, ImageFile, TiffImagePlugin, UnidentifiedImageError
from PIL.ExifTags import Base

from shardwright.core.images import deep_pixels
from shardwright.core.images.deep_pixels import FLOAT32, UINT8, UINT16, DeepHeader
from shardwright.core.images.faults import corrupt, pillow_settings, truncated, unsupported
from shardwright.core.images.formats.ccitt import BadFaxData, decode_fax
from shardwright.core.images.formats.containers import check_tags
from shardwright.core.images.formats.jpeg import words_of_libjpeg
from shardwright.core.images.formats.opened_image import (
    ORIENTATIONS,
    MetadataBlock,
    OpenedImage,
    OpenOptions,
    without_pixels,
)
from shardwright.core.storage.ranges import RandomAccessFile
from shardwright.schemas.bounds import Bounds
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import ImageFault, words_of

_BIG_TIFF = 43
#: Pillow takes the number of a BigTIFF for that of another TIFF if it is in this byte order.
_BIG_ENDIAN_BIG_TIFF = b"MM\0+"
#: Values of SampleFormat. The last one means unknown, which everybody reads as unsigned.
_UNSIGNED, _SIGNED, _FLOAT, _UNKNOWN = 1, 2, 3, 4
#: Values of PhotometricInterpretation, and the number of color channels of those that are read as samples.
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _CMYK, _YCBCR = 0, 1, 2, 5, 6
_COLOR_CHANNELS = {_WHITE_IS_ZERO: 1, _BLACK_IS_ZERO: 1, _RGB: 3, _CMYK: 4}
_YCBCR_SAMPLES = 3
_PREMULTIPLIED, _STRAIGHT = 1, 2
_SEPARATE = 2
_HORIZONTAL, _FLOATING_POINT = 2, 3
#: A directory of a TIFF.
Tags = TiffImagePlugin.ImageFileDirectory_v2
_REVERSED_BITS = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))
#: Pixels by which a tile may exceed the image: the last tiles of a row and of a column are not full.
_SEGMENT_SLACK = 1 << 20
#: Compressions that may use a predictor (TIFF 6.0, section 14, and libtiff).
_PREDICTED = frozenset(("tiff_lzw", "tiff_adobe_deflate", "tiff_deflate", "zstd", "lzma"))


@dataclass(frozen=True)
class TiffLayout:
    """The layout of a TIFF's pixels in its file.

    Attributes:
      tags: The directory of the picture.
      compression: Pillow's name of the compression.
      size: Width and height of the image in the file.
      segment: Width and height of a strip or tile.
      samples: Number of values per pixel in one segment.
      planes: Number of planes: 1, or the number of samples if they are stored separately.
      bits: Number of bits per sample.
      photometric: TIFF's PhotometricInterpretation; -1 if it is not stated.
    """

    tags: Tags
    compression: str
    size: tuple[int, int]
    segment: tuple[int, int]
    samples: int
    planes: int
    bits: int
    photometric: int

    def row_bytes(self, width: int) -> int:
        """Returns the number of bytes in a row of pixels, padded to whole bytes."""
        return -(-width * self.samples * self.bits // 8)

    @property
    def sample_type(self) -> np.dtype:
        """NumPy's type of the bits of a sample.

        Raises:
          ImageFault: If there is none.
        """
        if self.bits not in (8, 16, 32, 64):
            raise _not_decoded(f"separate planes of {self.bits} bits")
        return np.dtype(f"u{self.bits // 8}")


@dataclass(frozen=True, kw_only=True)
class TiffHeader(DeepHeader):
    """The samples of a TIFF, known before it is decoded.

    Attributes:
      source_dtype: NumPy's type of the samples in the file, such as i2 or f8; of 9 to 15 bits, u2.
      layout: The layout of the samples in the file.
      orientation: Orientation of the picture in the file, 1 to 8.
    """

    source_dtype: str
    layout: TiffLayout
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
        return super().decoded_bytes + 2 * math.prod(self.layout.segment) * self.channels * self.sample_bytes


class TiffImage(OpenedImage):
    """A TIFF that Pillow opens."""

    kind = "tiff"
    _plugin = "TIFF"
    _turned_by_decoder = True
    image: TiffImagePlugin.TiffImageFile

    @classmethod
    def open(cls, data: bytes, options: OpenOptions) -> OpenedImage:
        """Opens a file, and refuses one whose samples have a type or meaning that Pillow does not read."""
        if data.startswith(_BIG_ENDIAN_BIG_TIFF):
            raise unsupported("tiff: a BigTIFF in big-endian byte order is not read; convert it to PNG")
        if options.keep_depth or options.all_channels:
            samples = TiffSamples(data, options)
            if options.all_channels or samples.header.dtype != UINT8:
                return samples
        try:
            with pillow_settings(options.max_pixels, "tiff"):
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
        return bool(self.image.tag_v2.next)

    def is_lossy(self) -> bool:
        """Returns whether the strips or tiles are JPEGs."""
        return self.image.info.get("compression") == "jpeg"

    def _check_content(self) -> None:
        """Counts also what `_load` holds: all rows, and a strip or tile, which may be larger."""
        if self.image.mode == "L" and self.image.tag_v2.get(Base.SampleFormat) == (_SIGNED,):
            raise unsupported("8-bit signed integers have no defined brightness; convert to unsigned ones")
        width, height = self.image.size
        bits = self._number(Base.BitsPerSample, 1) * self._number(Base.SamplesPerPixel, 1)
        rows = min(self._number(Base.RowsPerStrip, height), height)
        tile = self._number(Base.TileWidth, width) * self._number(Base.TileLength, rows) * bits // 8
        self._extra_bytes = width * height * bits // 8 + 2 * tile

    def _number(self, tag: int, default: int) -> int:
        return max(all_numbers(self.image.tag_v2.get(tag, default)))

    def _load(self) -> Image.Image:
        """Decompresses the strips or tiles, which Pillow then reads."""
        image, tags = self.image, self.image.tag_v2
        luma_chroma = (
            tags.get(Base.PhotometricInterpretation) == _YCBCR and image.info.get("compression") != "jpeg"
        )
        is_raw = bool(image.tile) and image.tile[0].codec_name != "libtiff"
        if is_raw and not luma_chroma and not _has_planes(tags):
            return super()._load()  # uncompressed: Pillow detects missing data itself
        layout = layout_of(tags)
        segments = _segments(self.data, layout, self.bounds)
        planes = _planes(layout, self.data, segments)
        if len(planes) == 1:
            pixels = planes[0].reshape(-1).data
        else:
            interleaved = np.stack([plane.view(layout.sample_type) for plane in planes], axis=-1)
            pixels = interleaved.reshape(-1).view(np.uint8).data
        raw_mode = _raw_mode(image, layout, len(segments))
        if luma_chroma and layout.samples * layout.planes == _YCBCR_SAMPLES:
            if all_numbers(tags.get(Base.YCbCrSubSampling, (2, 2))) != (1, 1):
                raise _not_decoded("subsampled YCbCr without JPEG compression")
            pixels = memoryview(Image.frombytes("YCbCr", layout.size, bytes(pixels)).convert("RGB").tobytes())
            raw_mode = "RGB"
        image.getexif()  # it looks up tags in the file
        # Now Pillow reads an uncompressed image.
        image.tile = [ImageFile._Tile("raw", (0, 0, *layout.size), 0, (raw_mode, 0, 1))]
        image.use_load_libtiff = False
        rows = RandomAccessFile(lambda begin, size: pixels[begin : begin + size], len(pixels))
        image.fp = io.BufferedReader(rows)
        return super()._load()

    @staticmethod
    def metadata(data: bytes) -> Iterator[MetadataBlock]:
        """Yields the file itself: EXIF has its structure."""
        yield MetadataBlock("exif", data)


class TiffSamples(OpenedImage):
    """A TIFF whose samples Pillow does not hold: its picture has a size, but no pixels.

    Attributes:
      header: The first directory of the file.
    """

    kind = "tiff"
    _turned_by_decoder = True
    _bytes_per_pixel = 0  # only the samples

    def _read_header(self, max_pixels: int) -> Image.Image:
        with pillow_settings(max_pixels, "tiff"):
            check_tags(self.data, "tiff", self.bounds)
            file = io.BytesIO(self.data)
            tags = Tags(file.read(16 if self.data[2] == _BIG_TIFF else 8))
            file.seek(tags.next)
            tags.load(file)
            self.header = _header_of(tags)
        return without_pixels(self.header.size, "F")

    def _is_animated(self) -> bool:
        return bool(self.header.layout.tags.next)

    def deep_header(self) -> DeepHeader:
        """Returns the samples."""
        return self.header

    def read_samples(self, header: DeepHeader) -> np.ndarray:
        """Decodes all samples, upright."""
        own = self.header
        samples = read_samples(own.layout, self.data, self.bounds).view(own.source_dtype)
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
        own = TiffSamples(opened.data, options)
    except ImageFault:
        return opened  # samples of a type that only Pillow reads
    if not own.header.has_whole_range:
        return opened
    if own.header.problem:
        raise unsupported(own.header.problem)
    return own


def _refuse_other_samples(data: bytes, options: OpenOptions, unidentified: bool) -> None:
    """Raises the fault of a sound TIFF whose samples have a type or meaning that Pillow does not read.

    Args:
      data: The whole file.
      options: How it is opened.
      unidentified: Whether Pillow knows no mode for the samples.
    """
    try:
        header = TiffSamples(data, options).header
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


def _header_of(tags: Tags) -> TiffHeader:
    """Returns what a directory says about the samples.

    Raises:
      ImageFault: If the samples have a type that is not read.
      SyntaxError, KeyError and others: If it is damaged.
    """
    layout = layout_of(tags, all_planes=True)
    orientation = tags.get(Base.Orientation, 1)
    if orientation not in ORIENTATIONS:
        orientation = 1
    formats = set(all_numbers(tags.get(Base.SampleFormat, 1)))
    channels = layout.samples * layout.planes
    if len(formats) != 1 or channels < 1:
        raise _unsupported(f"{channels} samples of {layout.bits} bits with sample format {sorted(formats)}")
    dtype, source, highest = _types(layout.bits, formats.pop())
    profile = tags.get(Base.InterColorProfile, b"")
    extra = all_numbers(tags.get(Base.ExtraSamples, ()))
    alpha, problem = _meaning(layout.photometric, channels, extra, dtype)
    return TiffHeader(
        dtype=dtype,
        channels=channels,
        size=layout.size[::-1] if orientation > 4 else layout.size,
        highest=highest,
        alpha=alpha,
        inverted=layout.photometric == _WHITE_IS_ZERO and dtype != FLOAT32,
        cmyk=layout.photometric == _CMYK,
        profile=profile if isinstance(profile, bytes) else b"",
        problem=problem,
        source_dtype=source,
        layout=layout,
        orientation=orientation,
    )


def layout_of(tags: Tags, all_planes: bool = False) -> TiffLayout:
    """Returns the layout of a picture.

    Args:
      tags: The directory of the picture.
      all_planes: Whether to read also the planes that Pillow ignores.

    Raises:
      ImageFault: If no picture can have this layout.
    """
    width, height = int(tags[Base.ImageWidth]), int(tags[Base.ImageLength])
    bits = set(all_numbers(tags.get(Base.BitsPerSample, (1,))))
    if len(bits) != 1:
        raise _not_decoded(f"samples of {sorted(bits)} bits")
    samples = int(tags.get(Base.SamplesPerPixel, 1))
    separate = _has_planes(tags)
    extra = all_numbers(tags.get(Base.ExtraSamples, ()))
    if separate and extra and max(extra) == 0 and not all_planes:
        samples -= len(extra)  # planes that Pillow ignores
    if (configuration := tags.get(Base.PlanarConfiguration, 1)) not in (1, _SEPARATE):
        raise corrupt(f"tiff: its planar configuration is {configuration!r}, neither 1 nor 2")
    segment = (width, min(int(tags.get(Base.RowsPerStrip, height)) or height, height))
    if Base.TileOffsets in tags:
        segment = (int(tags[Base.TileWidth]), int(tags[Base.TileLength]))
    if min(segment) < 1:
        raise corrupt(f"tiff: its strips or tiles have {segment[0]} x {segment[1]} pixels")
    compression = tags.get(Base.Compression, 1)
    return TiffLayout(
        tags=tags,
        compression=str(TiffImagePlugin.COMPRESSION_INFO.get(compression, f"unknown ({compression})")),
        size=(width, height),
        segment=segment,
        samples=1 if separate else samples,
        planes=samples if separate else 1,
        bits=bits.pop(),
        photometric=int(tags.get(Base.PhotometricInterpretation, -1)),
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


def read_samples(layout: TiffLayout, data: bytes, bounds: Bounds) -> np.ndarray:
    """Decodes all samples of a TIFF, unchanged.

    Args:
      layout: Their layout.
      data: Bytes of the whole file.
      bounds: Limits on strips and tiles.

    Returns:
      The samples in native byte order, as unsigned integers of 8, 16, 32 or 64 bits, with shape (height,
      width, samples per pixel). Floating-point numbers and signed integers are returned as their bits.

    Raises:
      ImageFault: If data is damaged, missing or of an unsupported kind.
    """
    if layout.photometric == _YCBCR and layout.compression != "jpeg":
        raise _not_decoded("YCbCr without JPEG compression")
    width, height = layout.size
    planes = []
    for rows in _planes(layout, data, _segments(data, layout, bounds)):
        if 8 < layout.bits < 16:
            import imagecodecs

            run = width * layout.samples
            values = imagecodecs.packints_decode(rows.tobytes(), np.uint16, layout.bits, runlen=run)
        elif layout.bits in (8, 16, 32, 64):
            values = rows.view(layout.sample_type)
        else:
            raise _not_decoded(f"samples of {layout.bits} bits")
        planes.append(values.reshape(height, width, layout.samples))
    return planes[0] if len(planes) == 1 else np.concatenate(planes, axis=-1)


def _not_decoded(what: str) -> ImageFault:
    return unsupported(f"tiff: {what} cannot be decoded; convert it to PNG")


def _raw_mode(image: TiffImagePlugin.TiffImageFile, layout: TiffLayout, segments: int) -> str:
    """Returns Pillow's raw mode for whole pixels, with samples in this machine's byte order.

    Args:
      image: The picture, which is opened.
      layout: Its layout.
      segments: Number of its strips or tiles.
    """
    modes = [tile.args[0] for tile in image.tile if isinstance(tile.args, tuple)]
    raw_mode = str(modes[0])
    if image.tile[0].codec_name != "libtiff" and layout.planes > 1:
        # For uncompressed planes, Pillow has a mode of one letter each for any number of bits.
        letters = "".join(modes[: segments : segments // layout.planes])
        raw_mode = f"{letters};16" if layout.bits == 16 else letters
    kind, _, order = raw_mode.partition(";")
    if order[:2] not in ("16", "32"):
        return raw_mode
    return f"{kind};{order[:2]}N{order[2:].strip('BLN')}"  # S for signed, F for floating point


def _has_planes(tags: Tags) -> bool:
    """Returns whether a TIFF stores each channel for itself."""
    return tags.get(Base.PlanarConfiguration, 1) == _SEPARATE and int(tags.get(Base.SamplesPerPixel, 1)) > 1


def all_numbers(value: Any) -> tuple[int, ...]:
    """Returns the value of a tag as a tuple of numbers, even if there is only one."""
    return tuple(int(item) for item in value) if isinstance(value, (tuple, list)) else (int(value),)


def _segments(data: bytes, layout: TiffLayout, bounds: Bounds) -> list[tuple[int, int]]:
    """Returns the begin and end of each strip or tile, after checking that all are in the file."""
    tags = layout.tags
    tiled = Base.TileOffsets in tags
    offsets = all_numbers(tags[Base.TileOffsets if tiled else Base.StripOffsets])
    sizes = all_numbers(tags[Base.TileByteCounts if tiled else Base.StripByteCounts])
    width, height = layout.size
    columns, rows = math.ceil(width / layout.segment[0]), math.ceil(height / layout.segment[1])
    needed = columns * rows * layout.planes
    bounds.check("strips", needed, f"tiff: it has {needed} strips or tiles")
    if math.prod(layout.segment) > _SEGMENT_SLACK + 4 * width * height:
        raise corrupt("tiff: a tile of {} x {} pixels is larger than the image".format(*layout.segment))
    if len(offsets) < needed or len(sizes) < needed:
        raise truncated(f"tiff: it has {min(len(offsets), len(sizes))} of {needed} strips or tiles")
    shared = sum(sizes[:needed]) - len(data)
    bounds.check("shared_bytes", shared, f"tiff: its strips or tiles have {shared} bytes more than the file")
    for offset, size in zip(offsets[:needed], sizes):
        if offset < 0 or size < 1 or offset + size > len(data):
            raise truncated(f"tiff: the file ends before byte {offset + size}, where a strip or tile ends")
    return [(offset, offset + size) for offset, size in zip(offsets[:needed], sizes)]


def _planes(layout: TiffLayout, data: bytes, segments: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    """Returns the rows of each plane as bytes in native byte order, with shape (height, bytes per row)."""
    width, height = layout.size
    segment_width, segment_height = layout.segment
    columns = math.ceil(width / segment_width)
    if columns > 1 and segment_width * layout.samples * layout.bits % 8:
        raise corrupt(
            f"tiff: its tiles are {segment_width} pixels wide, which is not a whole number of bytes"
        )
    row_bytes = layout.row_bytes(segment_width)
    per_plane = len(segments) // layout.planes
    tiled = segment_width != width or per_plane * segment_height - height >= segment_height
    planes = [np.empty((height, layout.row_bytes(width)), np.uint8) for _ in range(layout.planes)]
    for index, (begin, end) in enumerate(segments):
        plane, place = divmod(index, per_plane)
        row, left = place // columns * segment_height, place % columns * row_bytes
        rows = min(segment_height, height - row)
        decoded = _decoded(data[begin:end], segment_height if tiled else rows, layout)
        target = planes[plane][row : row + rows, left : left + row_bytes]
        target[:] = decoded[:rows, : target.shape[1]]
    return planes


def _decoded(segment: bytes, rows: int, layout: TiffLayout) -> np.ndarray:
    """Decompresses a strip or tile with the given number of rows to shape (rows, bytes per row)."""
    width = layout.segment[0]
    size = rows * layout.row_bytes(width)
    if layout.tags.get(Base.FillOrder, 1) == 2 and layout.compression not in ("jpeg", "webp"):
        segment = segment.translate(_REVERSED_BITS)
    compression = layout.compression
    try:
        decoded = _decompressed(segment, size, rows, layout)
    except BadFaxData as error:
        raise truncated(f"tiff: {compression}: {error}") from error
    except (zlib.error, lzma.LZMAError, EOFError, RuntimeError, ValueError) as error:
        raise corrupt(f"tiff: {compression.removeprefix('tiff_')}: {words_of(error)}") from error
    if len(decoded) < size:
        raise truncated(f"tiff: a strip or tile has {len(decoded)} bytes instead of {size}")
    array = np.frombuffer(decoded, np.uint8, size)
    return _without_predictor(array, rows, layout)


def _without_predictor(array: np.ndarray, rows: int, layout: TiffLayout) -> np.ndarray:
    """Reverses TIFF's predictor and converts samples to native byte order."""
    width, samples = layout.segment[0], layout.samples
    predictor = int(layout.tags.get(Base.Predictor, 1)) if layout.compression in _PREDICTED else 1
    if predictor == _FLOATING_POINT:
        if layout.bits not in (16, 32, 64):
            raise _not_decoded(f"a floating point predictor over samples of {layout.bits} bits")
        import imagecodecs

        floats = array.view(f"f{layout.bits // 8}").reshape(rows, width, samples)
        floats = np.ascontiguousarray(imagecodecs.floatpred_decode(floats, axis=1))
        return floats.reshape(rows, -1).view(np.uint8)
    if predictor not in (1, _HORIZONTAL):
        raise _not_decoded(f"predictor {predictor}")
    if layout.bits not in (8, 16, 32, 64):
        if predictor == _HORIZONTAL:
            raise _not_decoded(f"a predictor over samples of {layout.bits} bits")
        return array.reshape(rows, -1)
    order = "<" if layout.tags.prefix == b"II" else ">"
    values = array.view(f"{order}u{layout.bits // 8}").astype(layout.sample_type, copy=False)
    if predictor == _HORIZONTAL:
        values = np.cumsum(values.reshape(rows, width, samples), axis=1, dtype=values.dtype)
    return values.reshape(rows, -1).view(np.uint8)


def _decompressed(segment: bytes, size: int, rows: int, layout: TiffLayout) -> bytes:
    """Returns the first bytes of a strip or tile, at most that many, and fewer if it ends early.

    Raises:
      ImageFault: If its compression is not supported, or the codec reports what is wrong.
      Exception: What the codec raises.
    """
    match layout.compression:
        case "raw":
            return segment[:size]
        case "packbits":
            return _unpack_bits(segment, size)
        case "tiff_lzw":
            import imagecodecs

            return bytes(imagecodecs.lzw_decode(segment, out=size))
        case "tiff_adobe_deflate" | "tiff_deflate":
            return _inflate(segment, size)
        case "lzma":
            return lzma.LZMADecompressor(memlimit=1 << 28).decompress(segment, size)
        case "zstd":
            import zstandard

            try:
                return zstandard.ZstdDecompressor().stream_reader(segment).read(size)
            except zstandard.ZstdError as error:
                raise ValueError(words_of(error)) from error
        case "tiff_ccitt" | "group3" | "group4":
            options = int(layout.tags.get(Base.T4Options, 0))
            return decode_fax(segment, rows, layout.segment[0], layout.compression, options)
        case "jpeg":
            return _decode_jpeg(segment, rows, layout)
        case "webp":
            return _decode_webp(segment, rows, layout)
        case other:
            raise _not_decoded(f"{other} compression")


def _inflate(segment: bytes, size: int) -> bytes:
    """Decompresses zlib data up to its checksum."""
    inflater = zlib.decompressobj()
    decoded = inflater.decompress(segment, size)
    while len(decoded) >= size and not inflater.eof and inflater.unconsumed_tail:
        inflater.decompress(inflater.unconsumed_tail, 1 << 16)
    if len(decoded) >= size and not inflater.eof:
        raise truncated("tiff: deflate: its data ends before its checksum")
    return decoded


def _unpack_bits(segment: bytes, size: int) -> bytes:
    """Decompresses PackBits (TIFF 6.0, section 9)."""
    parts: list[bytes] = []
    position = length = 0
    while length < size and position < len(segment):
        count = segment[position]
        position += 1
        if count < 128:
            part = segment[position : position + count + 1]
            position += count + 1
        elif count > 128:
            part = segment[position : position + 1] * (257 - count)
            position += 1
        else:
            continue
        parts.append(part)
        length += len(part)
    return b"".join(parts)


def _decode_jpeg(segment: bytes, rows: int, layout: TiffLayout) -> bytes:
    """Decodes a JPEG strip or tile (Adobe's TIFF Technical Note 2)."""
    import imagecodecs

    if layout.bits != 8:
        raise _not_decoded(f"JPEG samples of {layout.bits} bits")
    whole = segment
    if tables := bytes(layout.tags.get(Base.JPEGTables, b"")):
        whole = tables.removesuffix(b"\xff\xd9") + segment.removeprefix(b"\xff\xd8")
    try:
        simplejpeg.decode_jpeg(whole, "GRAY", min_height=1, min_width=1, min_factor=8, strict=True)
    except ValueError as error:  # TurboJPEG does not support all kinds
        message = words_of_libjpeg(error)
        lowered = message.lower()
        if "premature end" in lowered:
            raise truncated(f"tiff: jpeg: {message}") from error
        if "corrupt jpeg data" in lowered and "extraneous" not in lowered:
            raise corrupt(f"tiff: jpeg: {message}") from error
    color = 2 if layout.photometric in (_RGB, _YCBCR) else None  # RGB in TIFF's tag
    stored = 2 if layout.photometric == _RGB else None
    if layout.samples == 1:
        color = stored = None
    array = imagecodecs.jpeg8_decode(whole, colorspace=stored, outcolorspace=color)
    return _exactly(array, rows, layout)


def _decode_webp(segment: bytes, rows: int, layout: TiffLayout) -> bytes:
    import imagecodecs

    if layout.bits != 8 or layout.samples not in (3, 4):
        raise _not_decoded(f"WebP with {layout.samples} samples of {layout.bits} bits")
    array = imagecodecs.webp_decode(segment, hasalpha=layout.samples == 4)
    return _exactly(array, rows, layout)


def _exactly(array: np.ndarray, rows: int, layout: TiffLayout) -> bytes:
    """Returns the bytes of a picture inside a strip or tile, after checking that it fills it."""
    expected = (layout.segment[0], layout.samples)
    shape = array.reshape(*array.shape[:2], -1).shape
    if shape[1:] != expected or shape[0] < rows:
        raise truncated(
            f"tiff: a strip or tile holds {shape[1]} x {shape[0]} pixels of {shape[2]} samples instead of "
            f"{expected[0]} x {rows} of {expected[1]}"
        )
    return array[:rows].tobytes()
