"""Plans the geometry of an image (source box, target size, canvas), and resamples pictures as planned.

The filters are Pillow's, with SIMD instructions where they are available.
"""

from __future__ import annotations

from typing import NamedTuple

from PIL import Image

#: Filters of the SIMD library that match Pillow's: the same kernels, widened when shrinking. On photographs
#: its results are within 53 dB of Pillow's (bilinear: at most one level), the same for every instruction
#: set, and take a sixth of the time. Pillow handles the others: nearest and box, where rounding decides
#: between two pixels, and hamming, which the library does not have.
_FILTERS = {
    "bilinear": "bilinear",
    "bicubic": "catmull_rom",
    "lanczos": "lanczos3",
}


class Geometry(NamedTuple):
    """The mapping of an upright picture to a target box.

    Attributes:
      box: Part of the source that is used: left, upper, right, lower, in source pixels.
      size: Width and height to which that part is resampled.
      canvas: Width and height of the result.
      offset: Left and upper position of the resampled part on the canvas.
    """

    box: tuple[float, float, float, float]
    size: tuple[int, int]
    canvas: tuple[int, int]
    offset: tuple[int, int] = (0, 0)

    def reduction(self) -> int:
        """Returns the largest factor (1, 2, 4 or 8) by which the decoder may shrink the source.

        The shrunk box is still at least twice as large as the target on both sides, so that the final
        resampling determines the quality.
        """
        left, upper, right, lower = self.box
        for factor in (8, 4, 2):
            if (right - left) / factor >= 2 * self.size[0] and (lower - upper) / factor >= 2 * self.size[1]:
                return factor
        return 1


class Frame(NamedTuple):
    """The steps from the source image to the stored image, which boxes and masks follow too.

    Attributes:
      size: Width and height of the source image in its file, before its EXIF orientation is applied.
      orientation: EXIF orientation, 1 to 8.
      geometry: Mapping of the upright picture to the result.
    """

    size: tuple[int, int]
    orientation: int
    geometry: Geometry


def plan_geometry(width: int, height: int, target: tuple[int, int] | None, fit: str) -> Geometry:
    """Plans how a picture fits the target box, with the terms and the rounding of Pillow's ImageOps.

    Args:
      width: Width of the upright source in pixels.
      height: Height of the upright source in pixels.
      target: (width, height) of the box, or None to keep the size.
      fit: `stretch` (to the box), `contain` (inside it, aspect kept), `cover` (over it, aspect
        kept), `fit` (cover, then crop the middle), `pad` (contain, then pad).

    Returns:
      The geometry. Sizes are at least one pixel.
    """
    whole = (0.0, 0.0, float(width), float(height))
    if target is None:
        return Geometry(whole, (width, height), (width, height))
    if fit == "stretch":
        return Geometry(whole, target, target)
    if fit in ("contain", "cover"):
        size = _scale(width, height, target, inside=fit == "contain")
        return Geometry(whole, size, size)
    if fit == "fit":
        return Geometry(_middle(width, height, target), target, target)
    size = _scale(width, height, target, inside=True)
    offset = (round((target[0] - size[0]) * 0.5), round((target[1] - size[1]) * 0.5))
    return Geometry(whole, size, target, offset)


def _scale(width: int, height: int, target: tuple[int, int], inside: bool) -> tuple[int, int]:
    """Returns a size with the same aspect ratio that fits inside the target, or covers it."""
    ratio, target_ratio = width / height, target[0] / target[1]
    if ratio == target_ratio:
        return target
    if (ratio > target_ratio) == inside:
        return target[0], max(1, round(height / width * target[0]))
    return max(1, round(width / height * target[1])), target[1]


def _middle(width: int, height: int, target: tuple[int, int]) -> tuple[float, float, float, float]:
    """Returns the largest centered box in the source with the target's aspect ratio."""
    ratio, target_ratio = width / height, target[0] / target[1]
    if ratio == target_ratio:
        crop_width, crop_height = float(width), float(height)
    elif ratio >= target_ratio:
        crop_width, crop_height = target_ratio * height, float(height)
    else:
        crop_width, crop_height = float(width), width / target_ratio
    left, upper = (width - crop_width) * 0.5, (height - crop_height) * 0.5
    return left, upper, left + crop_width, upper + crop_height


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
    simd.Resizer().resize_pil(image, target, options)
    return target


def resize_and_pad(
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
      box: The part of the geometry, in pixels of the image.
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
