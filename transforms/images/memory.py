"""Estimates the memory for decoding an image from its header, before it is decoded.

The numbers are upper bounds, as measured. libjpeg keeps all coefficients of a picture with several scans at
full size, even for a smaller result. Pillow's WebP decoder keeps two canvases. A TIFF's tile may be larger
than its picture.
"""

from __future__ import annotations

from fractions import Fraction

from PIL import Image

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault
from shardwright.transforms.images.bounds import jpeg_frame

#: Bytes that a decoder may hold for each pixel that `--max_pixels` allows. A picture takes 4 per pixel. The
#: coefficients of a progressive JPEG take 3 (with chroma subsampling) or 6 (without).
MAX_BYTES_PER_PIXEL = 5
#: The same for a large file. A file of a few bytes that needs gigabytes is not a picture. A file that needs a
#: few hundred times its size may be a photograph of 50 megapixels.
MAX_BYTES_PER_PIXEL_OF_LARGE_FILES = 20
_BYTES_PER_BYTE_OF_FILE = 256
#: Bytes of a pixel in Pillow's memory, for every mode; gray takes one, but that is ignored.
_PIXEL_BYTES = 4
_COEFFICIENT_BYTES = 2
#: Bytes per pixel in Pillow's decoder of animated WebP (two canvases, a copy, the image, its colors) and of
#: AVIF (planes of up to 16 bits, the decoder's image, and Pillow's image).
_ANIMATED_WEBP_BYTES, _AVIF_BYTES = 20, 14
#: The same in OpenJPEG (a sample of 4 bytes for each channel, a copy, and Pillow's picture) and in libheif.
_JPEG2000_BYTES, _HEIF_BYTES = 24, 12
#: Bytes per pixel and channel in libjxl, which computes with floating-point numbers.
_JPEG_XL_BYTES = 10


def decoder_bytes(image: Image.Image, kind: str, data: bytes, animated: bool, coefficients: int = 0) -> int:
    """Returns the largest number of bytes that decoding an image takes, including the decoded picture.

    Args:
      image: Pillow's image, not loaded, with the size to which it will be decoded.
      kind: its format.
      data: the whole file.
      animated: whether it has more than one frame.
      coefficients: result of `coefficient_bytes`.
    """
    pixels = image.width * image.height
    decoded = pixels * _PIXEL_BYTES
    if kind == "jpeg":
        return decoded + coefficients
    if kind == "webp":
        if animated:
            return pixels * _ANIMATED_WEBP_BYTES
        return 2 * decoded if b"VP8L" in data else decoded  # the lossless decoder keeps its own picture
    if kind == "avif":
        return pixels * _AVIF_BYTES
    if kind == "heif":
        return pixels * _HEIF_BYTES
    if kind == "jpeg2000":
        return pixels * _JPEG2000_BYTES
    if kind == "tiff":
        return decoded + _tiff_bytes(image)
    return decoded


def jpeg_xl_bytes(width: int, height: int, channels: int) -> int:
    """Returns the largest number of bytes that decoding a JPEG XL takes."""
    return width * height * channels * _JPEG_XL_BYTES


def check_memory(needed: int, max_pixels: int, file_bytes: int) -> None:
    """Checks that a decoder does not need far more memory than the allowed pixels.

    Args:
      needed: number of bytes, from `decoder_bytes`.
      max_pixels: number of pixels of the largest accepted picture.
      file_bytes: size of the file in bytes.

    Raises:
      ImageFault: if it needs more.
    """
    of_file = min(file_bytes * _BYTES_PER_BYTE_OF_FILE, max_pixels * MAX_BYTES_PER_PIXEL_OF_LARGE_FILES)
    most = max(max_pixels * MAX_BYTES_PER_PIXEL, of_file)
    if needed > max(most, 1 << 24):
        raise ImageFault(
            QuarantineReason.TOO_MUCH_MEMORY,
            Stage.DECODE,
            f"decoding takes {needed // 10**6} MB, more than the {most // 10**6} MB that a file of its size "
            f"may take with --max_pixels {max_pixels}; raise --max_pixels to accept it",
        )


def coefficient_bytes(data: bytes) -> int:
    """Returns the bytes that libjpeg keeps for a JPEG with several scans; 0 for a single scan."""
    frame = jpeg_frame(data)
    if frame is None or not frame.several_scans:
        return 0
    max_across, max_down = max(h for h, _ in frame.sampling), max(v for _, v in frame.sampling)
    share = sum(Fraction(h * v, max_across * max_down) for h, v in frame.sampling)
    return int(frame.width * frame.height * share * _COEFFICIENT_BYTES)


def _tiff_bytes(image: Image.Image) -> int:
    """Returns the bytes that `tiff` holds besides Pillow's picture: all rows, and a strip or tile."""
    tags = image.tag_v2  # type: ignore[attr-defined]

    def number(tag: int, default: int) -> int:
        value = tags.get(tag, default)
        return int(max(value) if isinstance(value, tuple) else value)

    bits = number(258, 1) * number(277, 1)
    rows = image.width * image.height * bits // 8
    tile = number(322, image.width) * number(323, min(number(278, image.height), image.height)) * bits // 8
    return rows + 2 * tile
