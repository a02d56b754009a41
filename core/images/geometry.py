"""Plans the geometry of an image: source box, target size, canvas. Pure arithmetic."""

from __future__ import annotations

from typing import NamedTuple


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
        size = _scaled(width, height, target, inside=fit == "contain")
        return Geometry(whole, size, size)
    if fit == "fit":
        return Geometry(_middle(width, height, target), target, target)
    if fit == "pad":
        size = _scaled(width, height, target, inside=True)
        offset = (round((target[0] - size[0]) * 0.5), round((target[1] - size[1]) * 0.5))
        return Geometry(whole, size, target, offset)
    raise ValueError(f"unknown fit {fit!r}")


def _scaled(width: int, height: int, target: tuple[int, int], inside: bool) -> tuple[int, int]:
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
