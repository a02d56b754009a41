"""Finds the type and the number of the samples in an image file that has more than gray or RGB of 8 bits."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass, replace

from PIL import TiffImagePlugin

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault
from shardwright.transforms.images.tiff import Tags, all_numbers

UINT8, UINT16, FLOAT32 = "uint8", "uint16", "float32"
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_ORIENTATION, _SAMPLES, _EXTRA_SAMPLES, _SAMPLE_FORMAT, _PROFILE = 274, 277, 338, 339, 34675
_TILE_WIDTH, _TILE_LENGTH, _ROWS_PER_STRIP = 322, 323, 278
_BIG_TIFF = 43
#: Values of TIFF's SampleFormat. The last one means unknown, which everybody reads as unsigned.
_UNSIGNED, _SIGNED, _FLOAT, _UNKNOWN = 1, 2, 3, 4
_WHITE_IS_ZERO = 0
#: TIFF's PhotometricInterpretation -> number of color channels: gray (twice), RGB, CMYK.
_COLOR_CHANNELS = {_WHITE_IS_ZERO: 1, 1: 1, 2: 3, 5: 4}
_CMYK = 5
_PREMULTIPLIED, _STRAIGHT = 1, 2
#: PNG color type -> samples per pixel. A palette has 8 bits.
_PNG_SAMPLES = {0: 1, 2: 3, 4: 2, 6: 4}
_PNG_DEPTH_AT, _PNG_COLOR_AT = 24, 25


@dataclass(frozen=True)
class DeepHeader:
    """The samples of a picture, known before it is decoded.

    Attributes:
      dtype: type in which the samples are kept: uint8, uint16 or float32.
      channels: number of channels in the file, with alpha.
      size: width and height of the picture in pixels, upright if it is a TIFF.
      highest: value of white: 255, 65535, less for samples of 9 to 15 bits, and 1 for floating-point numbers.
      alpha: `straight` or `premultiplied` if the last channel is alpha, else empty.
      inverted: whether the lowest value is white.
      cmyk: whether the color channels are inks.
      source_dtype: NumPy's type of a TIFF's samples in the file, such as i2 or f8; of 9 to 15 bits, u2.
      tags: directory of a TIFF; None for other formats.
      compression: Pillow's name of a TIFF's compression.
      profile: ICC profile of a TIFF; empty if there is none.
      segment_pixels: number of pixels of a TIFF's strip or tile.
      orientation: a TIFF's orientation, 1 to 8; of other formats, `OpenedImage` has it.
      problem: why the color channels have no meaning as gray or RGB; empty if they have one.
    """

    dtype: str
    channels: int
    size: tuple[int, int]
    highest: int = 65535
    alpha: str = ""
    inverted: bool = False
    cmyk: bool = False
    source_dtype: str = ""
    tags: Tags | None = None
    compression: str = ""
    profile: bytes = b""
    segment_pixels: int = 0
    orientation: int = 1
    problem: str = ""

    @property
    def sample_bytes(self) -> int:
        """Bytes of a sample, as it is decoded."""
        return int(self.source_dtype[1:]) if self.source_dtype else {UINT8: 1, UINT16: 2}.get(self.dtype, 4)

    @property
    def sample_type(self) -> str:
        """Type of a sample in the file, for messages: `64-bit float`."""
        name = {"f": "float", "i": "signed integer"}.get(self.source_dtype[:1], "integer")
        return f"{self.highest.bit_length() if name == 'integer' else 8 * self.sample_bytes}-bit {name}"

    @property
    def has_whole_range(self) -> bool:
        """Whether samples have 16 bits, and the file does not state that they use fewer."""
        return self.source_dtype == "i2" or (self.dtype == UINT16 and self.highest == 65535)

    def with_white(self, white: int) -> DeepHeader:
        """Returns the header with a stated value of white for 16-bit samples; 0 for none."""
        if not white or not self.has_whole_range:
            return self
        return replace(self, highest=min(white, self.highest))

    @property
    def decoded_bytes(self) -> int:
        """Largest number of bytes that decoding takes: all rows twice, and two strips or tiles."""
        pixel = self.channels * self.sample_bytes
        rows = math.prod(self.size) * pixel
        return 2 * (rows + self.segment_pixels * pixel)


def png_header(data: bytes, size: tuple[int, int], transparent: bool) -> DeepHeader | None:
    """Returns the samples of a PNG with 16 bits per channel; None for other PNGs.

    Args:
      data: the whole file.
      size: its width and height in pixels.
      transparent: whether it names a transparent color.
    """
    if data[_PNG_DEPTH_AT] != 16 or data[_PNG_COLOR_AT] not in _PNG_SAMPLES:
        return None
    channels = _PNG_SAMPLES[data[_PNG_COLOR_AT]]
    has_alpha = channels in (2, 4) or transparent
    channels += transparent and channels in (1, 3)
    return DeepHeader(UINT16, channels, size, alpha="straight" if has_alpha else "")


def tiff_header(data: bytes) -> DeepHeader:
    """Reads the first directory of a TIFF.

    Raises:
      ImageFault: if the samples have a type that is not read.
      SyntaxError, KeyError and others: if it is damaged.
    """
    file = io.BytesIO(data)
    head = file.read(8)
    if _BIG_TIFF in (head[2], head[3]):
        head += file.read(8)
    tags = TiffImagePlugin.ImageFileDirectory_v2(head)
    file.seek(tags.next)
    tags.load(file)
    width, height = int(tags[_WIDTH]), int(tags[_HEIGHT])
    orientation = tags.get(_ORIENTATION, 1)
    if orientation not in range(1, 9):
        orientation = 1
    bits, formats = set(all_numbers(tags.get(_BITS, 1))), set(all_numbers(tags.get(_SAMPLE_FORMAT, 1)))
    samples = int(tags.get(_SAMPLES, 1))
    if len(bits) != 1 or len(formats) != 1 or samples < 1:
        raise _unsupported(f"samples of {sorted(bits)} bits with sample format {sorted(formats)}")
    depth = bits.pop()
    dtype, source, highest = _types(depth, formats.pop())
    photometric = int(tags.get(_PHOTOMETRIC, -1))
    compression = tags.get(_COMPRESSION, 1)
    profile = tags.get(_PROFILE, b"")
    rows = min(int(tags.get(_ROWS_PER_STRIP, height)), height)
    segment_pixels = int(tags.get(_TILE_WIDTH, width)) * int(tags.get(_TILE_LENGTH, rows))
    alpha, problem = _meaning(photometric, samples, all_numbers(tags.get(_EXTRA_SAMPLES, ())), dtype)
    return DeepHeader(
        dtype,
        samples,
        (height, width) if orientation > 4 else (width, height),
        highest,
        alpha,
        photometric == _WHITE_IS_ZERO and dtype != FLOAT32,
        photometric == _CMYK,
        source,
        tags,
        str(TiffImagePlugin.COMPRESSION_INFO.get(compression, f"unknown ({compression})")),
        profile if isinstance(profile, bytes) else b"",
        segment_pixels,
        orientation,
        problem,
    )


def _types(bits: int, sample_format: int) -> tuple[str, str, int]:
    """Returns the kept type of a TIFF's samples, their type in the file, and the value of white.

    Raises:
      ImageFault: if no kept type holds all their values.
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
    return ImageFault(
        QuarantineReason.UNSUPPORTED_FORMAT,
        Stage.DECODE,
        f"tiff: {what} cannot be kept; convert them to integers of 8 or 16 bits or to 32-bit floats",
    )
