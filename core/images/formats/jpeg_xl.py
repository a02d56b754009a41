"""Reads the header of a JPEG XL, and decodes it with libjxl.

The header has the size, so that a picture that is too large is refused before it is decoded. libjxl applies
the orientation, reports every file that ends early, and finds most damage, because its entropy coder checks
its final state.

Source: ISO/IEC 18181-1, annex D (headers) and E (colors); ISO/IEC 18181-2 (boxes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from PIL import Image

from shardwright.core.images.color import scaled_to_8_bits, within
from shardwright.core.images.faults import corrupt, pillow_settings, truncated, unsupported
from shardwright.core.images.formats.containers import boxes
from shardwright.core.images.formats.jpeg import JpegImage
from shardwright.core.images.formats.opened_image import SWAPS_SIDES, OpenedImage, OpenOptions, without_pixels
from shardwright.schemas.bounds import Bounds

_KIND = "jpeg_xl"
_CODESTREAM = b"\xff\x0a"
#: Bytes of a codestream that its header takes at most, without an ICC profile and names of channels.
_HEADER_BYTES = 1 << 12
#: Bytes of a sample while libjxl computes with floating-point numbers.
_BYTES_PER_CHANNEL = 10
#: Number -> ratio of width and height.
_RATIOS = {1: (1, 1), 2: (12, 10), 3: (4, 3), 4: (3, 2), 5: (16, 9), 6: (5, 4), 7: (2, 1)}
_ALPHA, _SPOT, _BLACK, _CFA = 0, 2, 4, 5
_RGB, _GRAY = 0, 1
_D65, _SRGB_PRIMARIES, _SRGB_TRANSFER = 1, 1, 13
#: (base, bits) for each of the four ways to write a number.
_ENUM = ((0, 0), (1, 0), (2, 4), (18, 6))
_SIDE = ((1, 9), (1, 13), (1, 18), (1, 30))
_PREVIEW_EIGHTHS = ((16, 0), (32, 0), (1, 5), (33, 9))
_PREVIEW_SIDE = ((1, 6), (65, 8), (321, 10), (1345, 12))
_INTEGER_BITS = ((8, 0), (10, 0), (12, 0), (1, 6))
_FLOAT_BITS = ((32, 0), (16, 0), (24, 0), (1, 6))
_CHANNELS = ((0, 0), (1, 0), (2, 4), (1, 12))
_DIM_SHIFT = ((0, 0), (3, 0), (4, 0), (1, 3))
_NAME_BYTES = ((0, 0), (0, 4), (16, 5), (48, 10))
_CFA_INDEX = ((1, 0), (0, 2), (3, 4), (19, 8))


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a JPEG XL.

    Attributes:
      size: Width and height of the upright picture, in pixels.
      bits: Bits per sample.
      is_gray: Whether there is one color channel.
      alpha: Pillow's name of the alpha channel: A, a if the colors are multiplied by it, or "" for none.
      is_animated: Whether it is an animation.
      channels: Number of channels, with those that are not shown.
      is_jpeg: Whether the file can give back the JPEG from which it was made.
    """

    size: tuple[int, int]
    bits: int
    is_gray: bool
    alpha: str
    is_animated: bool
    channels: int
    is_jpeg: bool

    @property
    def mode(self) -> str:
        """Pillow's mode of the decoded picture."""
        return ("L" if self.is_gray else "RGB") + self.alpha


class JpegXlImage(OpenedImage):
    """A JPEG XL, for which Pillow has no plugin."""

    kind = _KIND
    _turned_by_decoder = True

    @classmethod
    def open(cls, data: bytes, options: OpenOptions) -> OpenedImage:
        """Opens a file. One that was made from a JPEG is decoded as that JPEG."""
        opened = cls(data, options)
        if not opened._header.is_jpeg:
            return opened
        import imagecodecs

        original = bytes(imagecodecs.jpegxl_decode_jpeg(data, numthreads=1))
        with pillow_settings(options.max_pixels, UnpackedJpeg.kind):
            return UnpackedJpeg.open(original, options)

    def _read_header(self, max_pixels: int) -> Image.Image:
        self._header = read_header(self.data, self.bounds)
        self._bytes_per_pixel = self._header.channels * _BYTES_PER_CHANNEL
        return without_pixels(self._header.size, self._header.mode)

    def _is_animated(self) -> bool:
        return self._header.is_animated

    def _load(self) -> Image.Image:
        """Decodes the first frame, upright, with libjxl."""
        return decode_jpeg_xl(self.data, self._header)


class UnpackedJpeg(JpegImage):
    """A JPEG that was packed as a JPEG XL, which records do not store."""

    storable = False


class _Bits:
    """Reads numbers of a few bits, the lowest first."""

    def __init__(self, data: bytes) -> None:
        self._value = int.from_bytes(data, "little")
        self._left = 8 * len(data)

    def read(self, bits: int) -> int:
        """Returns the next number of `bits` bits."""
        if bits > self._left:
            raise truncated("jpeg_xl: it ends in its header")
        value = self._value & ((1 << bits) - 1)
        self._value >>= bits
        self._left -= bits
        return value

    def choice(self, ways: tuple[tuple[int, int], ...]) -> int:
        """Returns a number that is written in one of four ways."""
        base, bits = ways[self.read(2)]
        return base + self.read(bits)


def read_header(data: bytes, bounds: Bounds) -> Header:
    """Reads the header of a JPEG XL.

    Raises:
      ImageFault: If it is damaged, or has colors that are not read.
    """
    codestream, is_jpeg = _find_codestream(data, bounds)
    bits = _Bits(codestream[2 : 2 + _HEADER_BYTES])
    width, height = _read_size(bits)
    if bits.read(1):  # everything has its default
        return Header((width, height), 8, False, "", False, 3, is_jpeg)
    orientation, is_animated = 1, False
    has_more = bits.read(1)
    if has_more:
        orientation = 1 + bits.read(3)
        if bits.read(1):
            _read_size(bits)  # the size at which to show it
        if bits.read(1):
            ways = _PREVIEW_EIGHTHS if bits.read(1) else _PREVIEW_SIDE
            bits.choice(ways)
            if not bits.read(3):
                bits.choice(ways)
        is_animated = bool(bits.read(1))
        if is_animated:
            bits.choice(((100, 0), (1000, 0), (1, 10), (1, 30)))
            bits.choice(((1, 0), (1001, 0), (1, 8), (1, 10)))
            bits.choice(((0, 0), (0, 3), (0, 16), (0, 32)))
            bits.read(1)
    depth = _read_depth(bits)
    bits.read(1)
    extra = bits.choice(_CHANNELS)
    alpha = ""
    for _ in range(extra):
        name = _read_channel(bits)
        alpha = alpha or name
    is_xyb = bool(bits.read(1))
    is_gray = _read_colors(bits, is_xyb, is_jpeg)
    if orientation in SWAPS_SIDES:
        width, height = height, width
    channels = extra + (1 if is_gray else 3)
    return Header((width, height), depth, is_gray, alpha, is_animated, channels, is_jpeg)


def _find_codestream(data: bytes, bounds: Bounds) -> tuple[bytes, bool]:
    """Returns the beginning of the codestream, and whether the boxes can give back a JPEG."""
    if data.startswith(_CODESTREAM):
        return data[: 2 + _HEADER_BYTES], False
    codestream, is_jpeg = b"", False
    for box in boxes(data, 0, len(data), _KIND, bounds):
        is_jpeg |= box.type == b"jbrd"
        if box.type in (b"jxlc", b"jxlp") and len(codestream) < _HEADER_BYTES:
            begin = box.begin + (4 if box.type == b"jxlp" else 0)  # after the number of the part
            codestream += data[begin : min(box.end, begin + _HEADER_BYTES)]
        if box.end > len(data):
            raise truncated(f"jpeg_xl: it ends after {len(data)} of {box.end} bytes")
    if not codestream.startswith(_CODESTREAM):
        raise truncated("jpeg_xl: it has no pixels")
    return codestream, is_jpeg


def _read_size(bits: _Bits) -> tuple[int, int]:
    small = bits.read(1)
    height = 8 * (1 + bits.read(5)) if small else bits.choice(_SIDE)
    ratio = bits.read(3)
    if ratio:
        across, down = _RATIOS[ratio]
        return height * across // down, height
    return (8 * (1 + bits.read(5)) if small else bits.choice(_SIDE)), height


def _read_depth(bits: _Bits) -> int:
    if not bits.read(1):
        return bits.choice(_INTEGER_BITS)
    depth = bits.choice(_FLOAT_BITS)
    bits.read(4)  # bits of the exponent
    return depth


def _read_channel(bits: _Bits) -> str:
    """Reads the description of an extra channel; returns Pillow's name of alpha if it is alpha, else ""."""
    if bits.read(1):
        return "A"
    kind = bits.choice(_ENUM)
    _read_depth(bits)
    bits.choice(_DIM_SHIFT)
    for _ in range(bits.choice(_NAME_BYTES)):
        bits.read(8)
    if kind == _ALPHA:
        return "a" if bits.read(1) else "A"
    if kind == _BLACK:
        raise unsupported("jpeg_xl: CMYK is not read; convert it to PNG")
    if kind == _SPOT:
        bits.read(64)
    elif kind == _CFA:
        bits.choice(_CFA_INDEX)
    return ""


def _read_colors(bits: _Bits, is_xyb: bool, is_jpeg: bool) -> bool:
    """Checks that libjxl gives sRGB; returns whether the picture is gray.

    Raises:
      ImageFault: If the colors are others. A JPEG that is given back has its own profile.
    """
    if bits.read(1):
        return False
    has_profile, space = bool(bits.read(1)), bits.choice(_ENUM)
    if space not in (_RGB, _GRAY):
        raise unsupported("jpeg_xl: its color space is not read; convert it to PNG")
    is_gray = space == _GRAY
    if is_jpeg:
        return is_gray
    if has_profile:
        if is_xyb:
            return is_gray  # libjxl converts such colors to sRGB
        raise unsupported("jpeg_xl: the ICC profile in its codestream is not read; convert it to PNG")
    is_srgb = bits.choice(_ENUM) == _D65
    is_srgb = is_srgb and (is_gray or bits.choice(_ENUM) == _SRGB_PRIMARIES)
    if not is_srgb or bits.read(1) or bits.choice(_ENUM) != _SRGB_TRANSFER:
        raise unsupported("jpeg_xl: its colors are not sRGB, and only sRGB is read; convert it to PNG")
    return is_gray


def decode_jpeg_xl(data: bytes, header: Header) -> Image.Image:
    """Decodes the first frame, upright, with 8 bits per channel.

    Raises:
      RuntimeError: If libjxl reports damage or a part is missing.
      ImageFault: If the pixels do not have the size of the header, or have no defined brightness.
    """
    import imagecodecs

    try:
        pixels: Any = imagecodecs.jpegxl_decode(data, index=0, numthreads=1)
    except RuntimeError as error:
        if "NEED_MORE_INPUT" in str(error):
            raise truncated("jpeg_xl: it ends before its pixels") from error
        raise
    if pixels.ndim == 3 and header.is_gray and not header.alpha:
        pixels = pixels[0]  # the other channels are not shown
    bands = (1 if header.is_gray else 3) + len(header.alpha)
    shape = (header.size[1], header.size[0])
    if pixels.shape != (shape if bands == 1 else (*shape, bands)):
        raise corrupt("jpeg_xl: its pixels do not have the size of its header")
    is_float = pixels.dtype.kind == "f"
    if is_float and not within(pixels, 1):
        raise unsupported(
            "jpeg_xl: floating-point pixels outside 0..1 have no defined brightness; convert to 8 or 16 bits"
        )
    if is_float or header.bits != 8:
        pixels = scaled_to_8_bits(pixels, 1 if is_float else (1 << header.bits) - 1)
    return Image.frombytes(header.mode, header.size, pixels.tobytes())
