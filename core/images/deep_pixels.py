"""Pictures as NumPy arrays: more than 8 bits per channel, floating-point numbers, or many channels.

Pillow has no such pictures in color. Arrays have the shape (height, width, channels) and the type uint8,
uint16 or float32, in native byte order.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from PIL import Image, ImageCms

from shardwright.core.images import color
from shardwright.core.images.faults import corrupt, unsupported
from shardwright.core.images.geometry import Geometry, resize_rows_first
from shardwright.schemas.sample_types import UINT16_OF_UINT8

UINT8, UINT16, FLOAT32 = "uint8", "uint16", "float32"
#: Weights of ITU-R 601-2 luma, of 65536, as in Pillow's convert("L").
_LUMA = (19595, 38470, 7471)
#: littlecms: compute each pixel instead of interpolating in a table, which is too coarse for 16 bits.
_NO_TABLE = 0x0100
#: Compression level of PNG, written down because it decides the bytes.
_PNG_LEVEL = 6
#: Number of pixels that are converted at once, because the steps need several times their size.
_STRIP_PIXELS = 1 << 20


@dataclass(frozen=True)
class DeepHeader:
    """The samples of a picture, known before it is decoded.

    Attributes:
      dtype: Type in which the samples are kept: uint8, uint16 or float32.
      channels: Number of channels in the file, with alpha.
      size: Width and height of the picture in pixels, upright if it is a TIFF.
      highest: Value of white: 255, 65535, less for samples of 9 to 15 bits, and 1 for floating-point numbers.
      alpha: `straight` or `premultiplied` if the last channel is alpha, else empty.
      inverted: Whether the lowest value is white.
      cmyk: Whether the color channels are inks.
      profile: ICC profile, unless Pillow's image has it; empty if there is none.
      problem: Why the color channels have no meaning as gray or RGB; empty if they have one.
    """

    dtype: str
    channels: int
    size: tuple[int, int]
    highest: int = 65535
    alpha: str = ""
    inverted: bool = False
    cmyk: bool = False
    profile: bytes = b""
    problem: str = ""

    @property
    def sample_bytes(self) -> int:
        """Bytes of a sample, as it is decoded."""
        return {UINT8: 1, UINT16: 2}.get(self.dtype, 4)

    @property
    def has_whole_range(self) -> bool:
        """Whether samples have 16 bits, and the file does not state that they use fewer."""
        return self.dtype == UINT16 and self.highest == 65535

    def with_white(self, white: int) -> Self:
        """Returns the header with a stated value of white for 16-bit samples; 0 for none."""
        if not white or not self.has_whole_range:
            return self
        return replace(self, highest=min(white, self.highest))

    @property
    def decoded_bytes(self) -> int:
        """Largest number of bytes that decoding takes: all rows twice."""
        return 2 * math.prod(self.size) * self.channels * self.sample_bytes


def upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Returns a picture with its EXIF orientation (1 to 8) applied."""
    if orientation > 4:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


def eight_bits(pixels: np.ndarray, highest: int) -> np.ndarray:
    """Scales samples to uint8.

    Args:
      pixels: Samples of any type.
      highest: Value of white; 1 for floating-point numbers.

    Raises:
      ImageFault: If a sample is not between 0 and white.
    """
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype.kind == "f" and not color.within(pixels, highest):
        raise unsupported(
            f"samples outside of 0 to {highest} have no defined brightness; keep them with --depth keep"
        )
    if pixels.dtype.kind == "u" and (largest := int(pixels.max())) > highest:
        raise unsupported(
            f"it has a sample of {largest}, but white is {highest}; give a larger --white, up to 65535"
        )
    return color.scaled_to_8_bits(pixels, highest)


def picture_in_8_bits(pixels: np.ndarray, header: DeepHeader) -> Image.Image:
    """Scales samples of 16 bits to a picture of 8 bits in its own color space, with its alpha.

    Args:
      pixels: Samples as they are in the file.
      header: Their meaning.

    Raises:
      ImageFault: If a color sample is not between 0 and white.
    """
    colors = pixels[..., :-1] if header.alpha else pixels
    eight = eight_bits(colors, header.highest)
    if header.inverted:
        eight = 255 - eight
    mode = {1: "L", 3: "RGB", 4: "CMYK"}[eight.shape[-1]]
    if header.alpha:
        eight = np.concatenate([eight, eight_bits(pixels[..., -1:], 65535)], axis=-1)
        mode += "a" if header.alpha == "premultiplied" else "A"
    return Image.frombytes(mode, (pixels.shape[1], pixels.shape[0]), eight.tobytes())


def widened(samples: bytes) -> bytes:
    """Returns raw uint8 pixels as raw uint16 pixels, little-endian: 255 becomes 65535."""
    wide = np.frombuffer(samples, np.uint8).astype("<u2")
    wide *= UINT16_OF_UINT8
    return wide.tobytes()


def to_color(
    pixels: np.ndarray, header: DeepHeader, profile: bytes, color: str, background: tuple[int, int, int]
) -> np.ndarray:
    """Converts samples to sRGB or gray in their own type, and flattens alpha.

    ICC profiles of floating-point numbers are ignored, because such numbers are measurements.

    Args:
      pixels: Samples as they are in the file.
      header: Their meaning.
      profile: ICC profile; empty for none.
      color: `rgb`, `gray`, or `keep` (gray stays gray, everything else becomes RGB).
      background: Color under transparent pixels, 0 to 255 per channel.

    Returns:
      A picture with 1 or 3 channels.
    """
    rows = max(1, _STRIP_PIXELS // pixels.shape[1])
    if pixels.shape[0] > rows:
        strips = (pixels[top : top + rows] for top in range(0, pixels.shape[0], rows))
        return np.concatenate([to_color(strip, header, profile, color, background) for strip in strips])
    alpha = pixels[..., -1:] if header.alpha else None
    colors = pixels[..., :-1] if header.alpha else pixels
    if header.inverted:
        colors = header.highest - colors
    if header.alpha == "premultiplied":
        # Divided by alpha; transparent pixels become 0.
        divisor = np.maximum(pixels[..., -1:], 1).astype(np.uint32)
        divided = (colors.astype(np.uint32) * header.highest + divisor // 2) // divisor
        colors = np.asarray(np.minimum(divided, header.highest), colors.dtype)
    gray = colors.shape[-1] == 1
    colors = _to_srgb(colors, header, profile)
    if color == "gray" or (color == "keep" and gray):
        channels = 1
        # A gray picture on a colored background is composed in color.
        if colors.shape[-1] == 3 and (alpha is None or len(set(background)) == 1):
            colors = luma(colors)
    else:
        channels = 3
    if alpha is not None:
        colors = _flatten(colors, alpha, header.highest, background)
    if colors.shape[-1] > channels:
        return luma(colors)
    return np.repeat(colors, channels // colors.shape[-1], axis=-1) if channels > colors.shape[-1] else colors


def is_see_through(pixels: np.ndarray, header: DeepHeader) -> bool:
    """Returns whether a pixel is not opaque."""
    return bool(header.alpha) and bool((pixels[..., -1] < header.highest).any())


def _to_srgb(colors: np.ndarray, header: DeepHeader, profile: bytes) -> np.ndarray:
    """Applies an ICC profile in 16 bits. Inks without a usable profile are multiplied, as in Pillow."""
    mode = {1: "L", 3: "RGB", 4: "CMYK"}[colors.shape[-1]]
    if profile and colors.dtype == np.uint16 and color.srgb_transform(profile, mode):
        import imagecodecs

        space = {"L": "gray", "RGB": "rgb", "CMYK": "cmyk"}[mode]
        stored = np.ascontiguousarray(colors[..., 0] if mode == "L" else colors)
        source = _rescaled(stored, header.highest, 65535)
        srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
        with contextlib.suppress(RuntimeError, ValueError):  # a broken profile is ignored, as in browsers
            converted = imagecodecs.cms_transform(
                source, profile, srgb, colorspace=space, outcolorspace="rgb", flags=_NO_TABLE
            )
            return _rescaled(np.asarray(converted), 65535, header.highest)
    if not header.cmyk:
        return colors
    paper = header.highest - colors.astype(np.uint32)
    product = (paper[..., :3] * paper[..., 3:] + header.highest // 2) // header.highest
    return np.asarray(product, colors.dtype)


def _rescaled(samples: np.ndarray, highest: int, wanted: int) -> np.ndarray:
    """Scales samples of 16 bits to another value of white."""
    if highest == wanted:
        return samples
    return ((samples.astype(np.uint32) * wanted + highest // 2) // highest).astype(np.uint16)


def luma(colors: np.ndarray) -> np.ndarray:
    """Returns the gray of RGB pixels, with one channel."""
    if colors.dtype.kind == "f":
        gray = colors @ (np.array(_LUMA) / 65536).astype(colors.dtype)
    else:
        gray = (colors.astype(np.uint32) @ np.array(_LUMA, np.uint32) + 0x8000) >> 16
    return np.asarray(gray[..., None], colors.dtype)


def _flatten(
    colors: np.ndarray, alpha: np.ndarray, highest: int, background: tuple[int, int, int]
) -> np.ndarray:
    """Puts colors onto the background."""
    if len(set(background)) > 1 and colors.shape[-1] == 1:
        colors = np.repeat(colors, 3, axis=-1)
    below = (np.array(background[: colors.shape[-1]], np.uint32) * highest + 127) // 255
    opaque = alpha.astype(np.uint32)
    # Less than 2^32, because both products together are at most 65535 * 65535.
    mixed = (colors * opaque + below * (highest - opaque) + np.uint32(highest // 2)) // np.uint32(highest)
    return np.asarray(mixed, colors.dtype)


def resize_and_pad(
    pixels: np.ndarray, geometry: Geometry, resample: str, fill: np.ndarray | int
) -> np.ndarray:
    """Resamples part of a picture, each channel with 32-bit floats, and pads the result.

    Args:
      pixels: The upright picture.
      geometry: The part and the size of the result.
      resample: Pillow's name of the filter, in lower case.
      fill: Value around the picture, of each channel or of all.
    """
    height, width, channels = pixels.shape
    if geometry.canvas == geometry.size == (width, height) and geometry.box == (0, 0, width, height):
        return pixels
    canvas = np.full((geometry.canvas[1], geometry.canvas[0], channels), fill, pixels.dtype)
    left, top = geometry.offset
    resampled = canvas[top : top + geometry.size[1], left : left + geometry.size[0]]
    for channel in range(channels):
        plane = Image.fromarray(np.ascontiguousarray(pixels[..., channel], np.float32))
        resized = resize_rows_first(plane, geometry.size, resample, geometry.box)
        del plane
        values = np.asarray(resized)
        if pixels.dtype.kind != "f":
            values = np.clip(np.rint(values), 0, np.iinfo(pixels.dtype).max)
        resampled[..., channel] = values
    return canvas


def background_of(pixels: np.ndarray, background: tuple[int, int, int]) -> np.ndarray:
    """Returns the background color as samples of a gray or RGB picture.

    White is 65535 in uint16 and 1 in float32.
    """
    rgb = np.array([[background]], np.uint8)
    levels = (luma(rgb) if pixels.shape[-1] == 1 else rgb)[0, 0]
    if pixels.dtype.kind == "f":
        return np.asarray(levels / np.float32(255), pixels.dtype)
    return np.asarray(levels.astype(np.uint32) * (np.iinfo(pixels.dtype).max // 255), pixels.dtype)


def encode(pixels: np.ndarray, stored_format: str) -> bytes:
    """Encodes a picture.

    Args:
      pixels: Samples; for PNG of type uint8 or uint16, with 1 or 3 channels.
      stored_format: png or raw (rows of little-endian samples, height x width x channels).
    """
    if stored_format == "raw":
        return pixels.astype(pixels.dtype.newbyteorder("<"), copy=False).tobytes()
    import imagecodecs

    source = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    return bytes(imagecodecs.png_encode(np.ascontiguousarray(source), _PNG_LEVEL))


def decode_raw(data: bytes, dtype: str, shape: tuple[int, int, int]) -> np.ndarray:
    """Returns stored raw pixels as an array.

    Args:
      data: Rows of little-endian samples.
      dtype: uint8, uint16 or float32.
      shape: Height, width and channels.

    Raises:
      ImageFault: If the number of bytes does not fit.
    """
    stored_dtype = np.dtype(dtype).newbyteorder("<")
    if len(data) != math.prod(shape) * stored_dtype.itemsize:
        height, width, channels = shape
        raise corrupt(f"raw: {len(data)} bytes are not {height} x {width} x {channels} samples of {dtype}")
    return np.frombuffer(data, stored_dtype).reshape(shape).astype(dtype, copy=False)


def displayed(pixels: np.ndarray) -> Image.Image:
    """Returns a picture for drawing and measuring, with 8 bits in mode L or RGB.

    uint16 is scaled from 65535 to 255. float32 is stretched from its least to its greatest finite value; NaN
    and minus infinity become black, infinity becomes white. Of more than three channels the first three are
    shown as red, green and blue, and of two the first.

    Args:
      pixels: HxWxC of uint8, uint16 or float32.
    """
    samples = pixels[:, :, : 3 if pixels.shape[2] >= 3 else 1]
    if samples.dtype != np.uint8:
        eight = np.zeros(samples.shape, np.uint8)
        low, high = 0.0, 65535.0
        if samples.dtype.kind == "f":
            finite = np.isfinite(samples)
            low = float(samples.min(where=finite, initial=np.inf))
            high = float(samples.max(where=finite, initial=-np.inf))
        if low < high:  # otherwise all are equal, or not finite
            for row, stretched in zip(samples, eight, strict=True):  # the steps need several times the memory
                scaled = (row.astype(np.float64) - low) * (255 / (high - low))
                stretched[:] = np.rint(np.nan_to_num(scaled, nan=0, posinf=255, neginf=0))
        samples = eight
    return Image.fromarray(np.ascontiguousarray(samples[:, :, 0] if samples.shape[2] == 1 else samples))
