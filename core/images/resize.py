"""Resamples pictures with Pillow's filters, using SIMD instructions where available."""

from __future__ import annotations

import threading

from PIL import Image

from shardwright.core.images.geometry import Geometry

#: Filters of the SIMD library that match Pillow's: the same kernels, widened when shrinking. On photographs
#: its results are within 53 dB of Pillow's (bilinear: at most one level), the same for every instruction
#: set, and take a sixth of the time. Pillow handles the others: nearest and box, where rounding decides
#: between two pixels, and hamming, which the library does not have.
_FILTERS = {
    "bilinear": "bilinear",
    "bicubic": "catmull_rom",
    "lanczos": "lanczos3",
}
#: Largest picture, in pixels, whose working memory is kept for the next one.
_KEPT_PIXELS = 1 << 22
#: What a thread keeps: a resizer, with its working memory.
_OF_THREAD = threading.local()


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
    import cykooz_resizer as simd  # readers of datasets do not need it

    left, upper, right, lower = box
    # A rounding error may have put an edge outside of the picture.
    crop = simd.CropBox(left, upper, min(right, image.width) - left, min(lower, image.height) - upper)
    target = Image.new(image.mode, size)
    kernel = simd.ResizeAlg.convolution(getattr(simd.FilterType, _FILTERS[resample]))
    options = simd.ResizeOptions(kernel, crop_box=crop)
    # A resizer keeps its working memory. After a large picture, this is too much to keep in every thread.
    large = max(image.width * image.height, size[0] * size[1]) > _KEPT_PIXELS
    resizer = None if large else getattr(_OF_THREAD, "resizer", None)
    if resizer is None:
        resizer = simd.Resizer()
    if not large:
        _OF_THREAD.resizer = resizer
    resizer.resize_pil(image, target, options)
    return target


def place(
    image: Image.Image,
    geometry: Geometry,
    box: tuple[float, float, float, float],
    resample: str,
    fill: int | str,
) -> Image.Image:
    """Resamples part of a picture, and pads the result.

    Args:
      image: Picture in mode RGB or L, or in any mode if the filter is nearest.
      geometry: Sizes of the result.
      box: The part: that of the geometry, in pixels of the image.
      resample: Pillow's name of the filter, in lower case.
      fill: Value or color around the picture.
    """
    image = resize(image, geometry.size, resample, box)
    if geometry.canvas == geometry.size:
        return image
    padded = Image.new(image.mode, geometry.canvas, fill)
    padded.paste(image, geometry.offset)
    return padded


def resize_rows_first(
    image: Image.Image,
    size: tuple[int, int],
    resample: str,
    box: tuple[float, float, float, float],
) -> Image.Image:
    """Resamples part of a picture in any mode with Pillow: each row, then each column.

    Pillow 12 does so itself. Pillow 13 chooses the faster order, which rounds other pixels.
    """
    method = Image.Resampling[resample.upper()]
    if method is Image.Resampling.NEAREST:
        return image.resize(size, method, box=box)
    left, upper, right, lower = box
    rows = image.resize((size[0], image.height), method, box=(left, 0, right, image.height))
    return rows.resize(size, method, box=(0, upper, size[0], lower))
