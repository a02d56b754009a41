"""Resamples pictures with Pillow's filters, using SIMD instructions where available."""

from __future__ import annotations

import threading

from cykooz_resizer import CropBox, FilterType, ResizeAlg, ResizeOptions, Resizer
from PIL import Image

from shardwright.core.images.rows_first import resize_rows_first

#: Filters of the SIMD library that match Pillow's: the same kernels, widened when shrinking. On photographs
#: its results are within 53 dB of Pillow's (bilinear: at most one level), the same for every instruction
#: set, and take a sixth of the time. Pillow handles the others: nearest and box, where rounding decides
#: between two pixels, and hamming, which the library does not have.
_FILTERS = {
    "bilinear": FilterType.bilinear,
    "bicubic": FilterType.catmull_rom,
    "lanczos": FilterType.lanczos3,
}
#: Largest picture, in pixels, whose working memory is kept for the next one.
_KEPT_PIXELS = 1 << 22


class _OfThread(threading.local):
    """What a thread keeps: a resizer, with its working memory."""

    def __init__(self) -> None:
        self.resizer = Resizer()


_OF_THREAD = _OfThread()


def resize(
    image: Image.Image,
    size: tuple[int, int],
    resample: str,
    box: tuple[float, float, float, float],
) -> Image.Image:
    """Resamples part of a picture.

    Args:
      image: Picture in mode RGB or L.
      size: Width and height of the result in pixels.
      resample: Pillow's name of the filter, in lower case.
      box: The part to resample: left, upper, right, lower, in pixels of the image.

    Returns:
      A picture of that size; the same image if nothing changes.
    """
    if image.size == size and box == (0, 0, *image.size):
        return image
    if resample not in _FILTERS:
        return resize_rows_first(image, size, resample, box)
    left, upper, right, lower = box
    # A rounding error may have put an edge outside of the picture.
    crop = CropBox(left, upper, min(right, image.width) - left, min(lower, image.height) - upper)
    target = Image.new(image.mode, size)
    options = ResizeOptions(ResizeAlg.convolution(_FILTERS[resample]), crop_box=crop)
    # A resizer keeps its working memory. After a large picture, this is too much to keep in every thread.
    large = max(image.width * image.height, size[0] * size[1]) > _KEPT_PIXELS
    (Resizer() if large else _OF_THREAD.resizer).resize_pil(image, target, options)
    return target
