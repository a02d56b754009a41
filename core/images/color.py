"""Converts any picture that Pillow opens to 8-bit sRGB or gray, without clipping or hidden colors."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from PIL import Image, ImageCms
from PIL.ExifTags import Base

from shardwright.core.images.faults import NO_LIMIT, pillow_settings, unsupported

_SRGB = ImageCms.createProfile("sRGB")
#: Largest difference (of 255) from sRGB of a profile that is treated as sRGB.
_SRGB_TOLERANCE = 2
#: In a profile that shows white darker than this (of 255) in any channel, the colors are damaged.
_LEAST_WHITE = 128
#: Number of pixels that are converted at once.
STRIP_PIXELS = 1 << 22
_WHITE_IS_ZERO, _SIGNED = 0, (2,)
_GRAY_MODES = frozenset(("1", "L", "LA", "La", "I", "F"))
_ALPHA_MODES = {"RGBA": "RGB", "LA": "L", "PA": "RGB", "RGBa": "RGB", "La": "L"}


def is_gray(image: Image.Image) -> bool:
    """Returns whether a picture is gray: one color channel."""
    return image.mode in _GRAY_MODES or image.mode.startswith("I;")


def is_translucent(image: Image.Image) -> bool:
    """Returns whether a picture has an alpha channel or names transparent colors."""
    return image.mode in _ALPHA_MODES or "transparency" in image.info


def is_see_through(image: Image.Image) -> bool:
    """Returns whether a loaded picture has a pixel that is not opaque."""
    if not is_translucent(image):
        return False
    opaque = (255, 255)
    return expanded(image).getchannel("A").getextrema() != opaque


def profile_of(image: Image.Image) -> bytes | None:
    """Returns the embedded ICC profile; None if there is none."""
    profile = image.info.get("icc_profile")
    return profile if isinstance(profile, bytes) else None


def has_profile(image: Image.Image) -> bool:
    """Returns whether a picture has an ICC profile other than sRGB."""
    profile = profile_of(image)
    if not profile or image.mode in ("I", "F") or image.mode.startswith("I;"):
        return False
    base = _ALPHA_MODES.get(image.mode, "RGB" if image.mode == "P" else image.mode)
    return srgb_transform(profile, "L" if base == "1" else base) is not None


@lru_cache(maxsize=64)
def srgb_transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Returns the transform from an ICC profile to sRGB; None if it changes nothing or cannot be used.

    Profiles that do not fit the picture's mode or are damaged are ignored, as in browsers.

    Args:
      profile: The profile.
      mode: L, RGB or CMYK.
    """
    try:
        transform = ImageCms.buildTransform(ImageCms.ImageCmsProfile(io.BytesIO(profile)), _SRGB, mode, "RGB")
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return None
    if mode not in ("RGB", "L"):
        return transform
    # Ramps of each channel and of gray show whether primaries or curves differ.
    ramp = np.arange(0, 256, 5, dtype=np.uint8)
    if mode == "L":
        probe = Image.fromarray(ramp[None])
    else:
        zero = np.zeros_like(ramp)
        rows = [(ramp, ramp, ramp), (ramp, zero, zero), (zero, ramp, zero), (zero, zero, ramp)]
        probe = Image.fromarray(np.stack([np.stack(row, axis=-1) for row in rows]))
    seen = ImageCms.applyTransform(probe, transform)
    if seen is None:
        return None
    shown = np.asarray(seen, np.int16)
    if shown[0, -1].min() < _LEAST_WHITE:  # some programs write colors that are zero
        return None
    difference = np.abs(shown - np.asarray(probe.convert("RGB"), np.int16))
    return None if difference.max() <= _SRGB_TOLERANCE else transform


def within(samples: np.ndarray, highest: int) -> bool:
    """Returns whether all samples are numbers from 0 to `highest`."""
    return bool(samples.min() >= 0 and samples.max() <= highest)  # NaN is not


def scaled_to_8_bits(samples: np.ndarray, highest: int) -> np.ndarray:
    """Scales samples to uint8.

    Args:
      samples: Integers from 0 to `highest`, of any type; or fractions.
      highest: Value of white; 1 for fractions.
    """
    if highest == 1:
        return np.rint(samples * np.float32(255)).astype(np.uint8)
    return ((samples.astype(np.uint32) * 255 + highest // 2) // highest).astype(np.uint8)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scales a picture with more than 8 bits per channel to 8 bits: L, or LA if a value is transparent."""
    values = np.asarray(image)
    is_float = image.mode == "F"
    full = 1 if is_float else 65535
    if not within(values, full):
        kind = "floating-point pixels outside 0..1" if is_float else "32-bit pixels"
        raise unsupported(f"{kind} have no defined brightness; convert to 8 or 16 bits")
    # Pillow ignores these properties of a TIFF (TIFF 6.0, sections 8 and 19).
    tags = {} if is_float else getattr(image, "tag_v2", {})
    if tags.get(Base.BitsPerSample) == (12,):
        full = 4095
    elif tags.get(Base.BitsPerSample) == (16,) and tags.get(Base.SampleFormat) == _SIGNED:
        full = 32767
    scaled = scaled_to_8_bits(values, full)
    if tags.get(Base.PhotometricInterpretation) == _WHITE_IS_ZERO and image.mode.startswith("I;"):
        scaled = 255 - scaled
    gray = Image.fromarray(scaled)
    key = image.info.get("transparency")
    if isinstance(key, int):
        gray.putalpha(Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8)))
    return gray


def expanded(image: Image.Image) -> Image.Image:
    """Converts a picture to a mode with one value per channel: L, LA, RGB, RGBA, CMYK, LAB, YCbCr."""
    if image.mode in ("I", "F") or image.mode.startswith("I;"):
        return _eight_bits(image)
    if image.mode == "1":
        return image.convert("LA" if is_translucent(image) else "L")
    if image.mode in ("P", "PA"):
        return image.convert("RGBA" if is_translucent(image) else "RGB")
    if image.mode in ("RGB", "L") and "transparency" in image.info:
        return image.convert("RGBA" if image.mode == "RGB" else "LA")
    if image.mode in ("RGBa", "La"):
        return image.convert(image.mode.upper())
    if image.mode in ("RGBX", "HSV"):
        return image.convert("RGB")
    return image


def to_color(image: Image.Image, color: str, background: tuple[int, int, int]) -> Image.Image:
    """Converts a picture to 8-bit sRGB ("RGB") or gray ("L").

    Palettes are expanded, 16 bits scaled, ICC profiles applied and alpha flattened.

    Args:
      image: A loaded picture in any mode of the supported formats.
      color: `rgb`, `gray`, or `keep` (gray stays gray, everything else becomes RGB).
      background: Color under transparent pixels, 0 to 255 per channel.

    Raises:
      ImageFault: If the pixel values have no defined brightness.
    """
    mode = "L" if color == "gray" or (color == "keep" and is_gray(image)) else "RGB"
    if image.mode == mode and not profile_of(image) and "transparency" not in image.info:
        return image
    rows = max(1, STRIP_PIXELS // image.width)
    if image.height <= rows:
        return _to_mode(image, mode, background)
    whole = Image.new(mode, image.size)
    for top, strip in strips(image, rows):  # the steps need several times its size
        if hasattr(image, "tag_v2"):
            vars(strip)["tag_v2"] = image.tag_v2
        part = _to_mode(strip, mode, background)
        whole.info = part.info
        whole.paste(part, (0, top))
    return whole


def strips(image: Image.Image, rows: int) -> Iterator[tuple[int, Image.Image]]:
    """Yields the strips of a picture with their first rows; the picture itself if it has no more rows."""
    if rows >= image.height:
        yield 0, image
        return
    for top in range(0, image.height, rows):
        with pillow_settings(NO_LIMIT):
            strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        yield top, strip


def _to_mode(image: Image.Image, mode: str, background: tuple[int, int, int]) -> Image.Image:
    """Returns a picture in sRGB with the mode RGB or L."""
    profile = profile_of(image)
    image = expanded(image)
    alpha = image.getchannel("A") if image.mode in ("RGBA", "LA") else None
    if alpha is not None:
        image = image.convert(_ALPHA_MODES[image.mode])
    transform = srgb_transform(profile, image.mode) if profile and image.mode != "LAB" else None
    if image.mode == "LAB":
        transform = ImageCms.buildTransform(ImageCms.createProfile("LAB"), _SRGB, "LAB", "RGB")
    if transform is not None:
        image = ImageCms.applyTransform(image, transform) or image
    if image.mode != mode and not (image.mode == "L" and alpha is not None):
        image = image.convert(mode)
    if alpha is None:
        return image
    gray = image.mode == "L" and len(set(background)) == 1
    if not gray:
        image = image.convert("RGB")
    canvas = Image.new(image.mode, image.size, background[0] if gray else background)
    canvas.paste(image, mask=alpha)
    return canvas.convert(mode) if canvas.mode != mode else canvas
