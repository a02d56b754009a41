"""Limits the memory for decoding an image, which its format estimates from the header.

The estimates are upper bounds, as measured.
"""

from __future__ import annotations

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault

#: Bytes that a decoder may hold for each pixel that `--max_pixels` allows. A picture takes 4 per pixel. The
#: coefficients of a progressive JPEG take 3 (with chroma subsampling) or 6 (without).
MAX_BYTES_PER_PIXEL = 5
#: The same for a large file. A file of a few bytes that needs gigabytes is not a picture. A file that needs a
#: few hundred times its size may be a photograph of 50 megapixels.
MAX_BYTES_PER_PIXEL_OF_LARGE_FILES = 20
_BYTES_PER_BYTE_OF_FILE = 256


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
