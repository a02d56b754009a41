"""Measures the pixels of a picture: sums for statistics, fingerprints for duplicates, and issues.

Issues are defined as in cleanvision 0.3.7 (issue_managers/image_property.py there), with its thresholds, so
that its users find the same pictures. The computation differs: pictures of any size are processed in strips,
and percentiles come from some thousands of pixels. As in cleanvision, these measures ignore transparency.
For the fingerprints, transparent pixels are drawn on a background. A picture is gray if its channels are
equal; cleanvision looks at its mode instead.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from shardwright.core.images.perceptual_hash import hash_and_patch
from shardwright.core.images.pillow_settings import NO_LIMIT, pillow_settings
from shardwright.core.images.resize import resize
from shardwright.core.images.rows_first import resize_rows_first
from shardwright.core.images.sample_sums import sum_samples
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.pictures import ImageQuality
from shardwright.schemas.units import beside_limit

Array = npt.NDArray[Any]

#: Names of the values in `ImageQuality.scores`. `brightness` is the mean, 0 to 1; `brightness_5` and
#: `brightness_99` are percentiles of the pixels' brightness; `information` is the entropy, 1 from ten bits
#: on; `sharpness` is 0 to 1; `aspect_ratio` is the shorter side divided by the longer.
SCORES = ("brightness", "brightness_5", "brightness_99", "information", "sharpness", "aspect_ratio")

_DARK = 0.32
_LIGHT = 0.05
_BLURRY = 0.29
_LOW_INFORMATION = 0.3
_ODD_ASPECT_RATIO = 0.35
_PERCENTILES = (5, 99)
#: Bits of entropy for an information of 1, and the rate at which sharpness approaches 1.
_FULL_BITS = 10.0
_SHARPNESS_RATE = 0.01
#: A spread of gray values below this adds nothing to sharpness.
_SPREAD_COUNTS = 0.18
_BLUR_SIDE = 64
_SCORE_DIGITS = 4
#: A picture without a darker value in any channel looks blank.
_NEARLY_WHITE = 240

#: Weights of the squares of red, green and blue in perceived brightness (Finley, "HSP Color Model", 2006).
_WEIGHTS = (0.241, 0.691, 0.068)
#: Least number of pixels for percentiles, if the picture has as many.
_SAMPLES = 8_192
#: Number of levels of squared brightness: steps of 0.0002 near the threshold of dark pictures.
_LEVELS = 1 << 13
#: A picture with more pixels is measured in strips of about this many.
STRIP_PIXELS = 1 << 20
#: A large picture in a mode other than RGB or L is first reduced to sides of 512 to 1,023 pixels.
_REDUCED_SIDE = 512

#: Values of a channel and their squares; a histogram times these gives the sums of both.
_POWERS = np.stack([np.arange(256), np.arange(256) ** 2], axis=1).astype(np.float64)
_GRAYS = np.arange(256, dtype=np.uint8)[:, None].repeat(3, axis=1)
#: Factor from the square of each channel's value to levels of squared brightness.
_SHARES = (np.array(_WEIGHTS) * (_LEVELS - 1) / 255**2).astype(np.float32)


def measure_quality(image: Image.Image) -> ImageQuality:
    """Measures a decoded image.

    Args:
      image: Image of any mode and size. It is processed in parts, so little memory is needed.
    """
    width, height = image.size
    if not width or not height:
        return ImageQuality((), (), 0, bytes(16), bytes(32), b"")
    rows = max(1, STRIP_PIXELS // width)
    x_factor, y_factor = (max(1, side // _REDUCED_SIDE) for side in image.size)
    rows = max(y_factor, rows - rows % y_factor)
    step = _step(width, height)
    counts: Array | None = None
    bright = np.zeros(_LEVELS, np.int64)
    checksum = 0
    gray = True
    thumb: Image.Image | None = None
    for top, strip in _strips(image, rows):
        data = strip.tobytes()
        checksum = zlib.crc32(data, checksum)
        plain = eight_bits(strip)
        found = np.array(plain.histogram(), np.float64)
        counts = found if counts is None else counts + found
        bands = len(found) // 256
        if bands >= 3:
            pixels = np.frombuffer(data if plain is strip else plain.tobytes(), np.uint8).reshape(-1, bands)
            gray = gray and _is_gray(found, pixels)
            bright += np.bincount(_brightness(pixels[-top * width % step :: step]), minlength=_LEVELS)
        if image.mode in ("L", "RGB"):
            continue  # reduced as a whole below
        if rows >= height:
            thumb = plain
        else:
            if thumb is None:
                thumb = Image.new(plain.mode, (-(-width // x_factor), -(-height // y_factor)))
            thumb.paste(plain.reduce((x_factor, y_factor)), (0, top // y_factor))
    assert counts is not None
    channels = counts.reshape(-1, 256)
    if len(channels) < 3:
        bright = np.bincount(_brightness(_GRAYS), channels[0], _LEVELS).astype(np.int64)
    thumb = _shrink(image if thumb is None else thumb)
    sums, squares = (channels @ _POWERS).T
    scores = (
        _mean_brightness(sums / (width * height)),
        *_percentiles(bright),
        min(1.0, _entropy(counts) / _FULL_BITS),
        _sharpness(thumb.convert("L")),
        min(width, height) / max(width, height),
    )
    return ImageQuality(
        tuple(map(int, sums)),
        tuple(map(int, squares)),
        width * height,
        _digest(image, checksum, counts, thumb),
        *hash_and_patch(_on_white(thumb)),
        issues=tuple(_issues(scores, gray)),
        scores=scores,
    )


def measure_stored_samples(image: Image.Image, pixels: Array) -> ImageQuality:
    """Measures an image whose record states the type of its samples.

    Issues, scores and fingerprints are those of the picture as it is displayed. The samples are added up in
    their own units, and pictures have an equal digest only if their samples are equal.

    Args:
      image: The picture as it is displayed (`displayed`).
      pixels: The stored samples: HxWxC of uint8, uint16 or float32, without transparency.
    """
    quality = measure_quality(image)
    digest = quality.digest
    if pixels.dtype != np.uint8 or pixels.shape[2] != len(image.getbands()):
        checksum = hashlib.sha256(f"{pixels.dtype.name} {pixels.shape} ".encode())
        checksum.update(np.ascontiguousarray(pixels).data)
        digest = checksum.digest()[: len(digest)]
    return quality._replace(digest=digest, samples=sum_samples(pixels))


def fingerprints_of(image: Image.Image) -> tuple[bytes, bytes]:
    """Returns the hash and the patch of a decoded image, as `measure_quality` computes them.

    Args:
      image: Image of any mode, in memory as a whole.
    """
    return hash_and_patch(_on_white(_shrink(eight_bits(image))))


def _issues(scores: tuple[float, ...], gray: bool) -> Iterator[str]:
    """Yields the codes of a picture's issues."""
    _, dimmest, brightest, information, sharpness, aspect_ratio = scores
    if brightest < _DARK:
        yield FindingCode.DARK.value
    if 1 - dimmest < _LIGHT:
        yield FindingCode.LIGHT.value
    if sharpness < _BLURRY:
        yield FindingCode.BLURRY.value
    if information < _LOW_INFORMATION:
        yield FindingCode.LOW_INFORMATION.value
    if aspect_ratio < _ODD_ASPECT_RATIO:
        yield FindingCode.ODD_ASPECT_RATIO.value
    if gray:
        yield FindingCode.GRAYSCALE.value


def score_of_issue(code: str, scores: tuple[float, ...]) -> float | None:
    """Returns how usual a picture is with respect to an issue, from 0 for the worst to 1; None if unknown.

    Args:
      code: Code from `ImageQuality.issues`.
      scores: Values of `ImageQuality.scores`.
    """
    _, dimmest, brightest, information, sharpness, aspect_ratio = scores
    score = {
        FindingCode.DARK: brightest,
        FindingCode.LIGHT: 1 - dimmest,
        FindingCode.BLURRY: sharpness,
        FindingCode.LOW_INFORMATION: information,
        FindingCode.ODD_ASPECT_RATIO: aspect_ratio,
    }.get(FindingCode(code))
    return None if score is None else round(score, _SCORE_DIGITS)


def describe_issue(code: str, scores: tuple[float, ...]) -> str:
    """Describes an issue of a picture in one sentence.

    Args:
      code: Code from `ImageQuality.issues`.
      scores: Values of `ImageQuality.scores`.
    """
    if code == FindingCode.GRAYSCALE:
        return "it has no colors"
    _, dimmest, brightest, information, sharpness, aspect_ratio = scores
    match code:
        case FindingCode.DARK:
            value, limit = beside_limit(brightest, _DARK)
            return f"99% of its pixels are darker than {value} of white (limit {limit})"
        case FindingCode.LIGHT:
            value, limit = beside_limit(dimmest, 1 - _LIGHT)
            return f"95% of its pixels are brighter than {value} of white (limit {limit})"
        case FindingCode.BLURRY:
            value, limit = beside_limit(sharpness, _BLURRY)
            return f"its sharpness is {value} of 1 (limit {limit})"
        case FindingCode.LOW_INFORMATION:
            value, limit = beside_limit(information, _LOW_INFORMATION, _FULL_BITS)
            return f"its pixels have {value} bits of entropy (limit {limit})"
        case _:
            value, limit = beside_limit(aspect_ratio, _ODD_ASPECT_RATIO)
            return f"its shorter side is {value} of the longer (limit {limit})"


def _is_gray(counts: Array, pixels: Array) -> bool:
    """Returns whether all pixels have equal red, green and blue."""
    red, green, blue = counts.reshape(-1, 256)[:3]
    if not (np.array_equal(red, green) and np.array_equal(green, blue)):
        return False
    return np.array_equal(pixels[:, 0], pixels[:, 1]) and np.array_equal(pixels[:, 1], pixels[:, 2])


def _step(width: int, height: int) -> int:
    """Returns the step between sampled pixels, chosen so that all columns are sampled equally."""
    step = max(1, width * height // _SAMPLES)
    while math.gcd(step, width) > 1:
        step -= 1
    return step


def _brightness(pixels: Array) -> Array:
    """Returns the squared perceived brightness of pixels, in levels."""
    values = pixels[:, :3].astype(np.float32)
    values *= values
    return (values @ _SHARES + np.float32(0.4)).astype(np.int64)  # rounds; 0.5 might make white too bright


def _digest(image: Image.Image, checksum: int, counts: Array, thumb: Image.Image) -> bytes:
    """Returns a digest that is equal for equal pictures only.

    It covers a checksum, the histogram and a small copy. Together they distinguish pictures about as well as
    a digest of all pixels, which would take as long as all other measures together.
    """
    digest = hashlib.sha256(f"{image.mode} {image.width} {image.height} {checksum} ".encode())
    if "P" in image.mode:
        digest.update(bytes(image.getpalette("RGBA") or ()))
    digest.update(counts.tobytes())
    digest.update(thumb.tobytes())
    return digest.digest()[:16]


def _strips(image: Image.Image, rows: int) -> Iterator[tuple[int, Image.Image]]:
    if rows >= image.height:
        yield 0, image
        return
    for top in range(0, image.height, rows):
        with pillow_settings(NO_LIMIT):
            strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        yield top, strip


def eight_bits(image: Image.Image) -> Image.Image:
    """Converts a picture to L, LA, RGB or RGBA."""
    mode = image.mode
    if mode in ("L", "RGB", "RGBA", "LA"):
        return image
    if mode in ("P", "PA"):
        return image.convert("RGBA" if mode == "PA" or "transparency" in image.info else "RGB")
    if mode in ("La", "RGBa"):
        return image.convert(mode.upper())
    if mode in ("I", "F") or mode.startswith("I;"):
        values = np.asarray(image, np.float64)
        scaled = np.nan_to_num(values) * (255 if mode == "F" else 255 / 65535)
        return Image.fromarray(np.clip(np.rint(scaled), 0, 255).astype(np.uint8))
    if mode == "1":
        return image.convert("L")
    try:
        return image.convert("RGB")
    except ValueError:  # LAB: its lightness
        return image.getchannel(0)


def _shrink(image: Image.Image) -> Image.Image:
    """Reduces a picture to at most 64 pixels per side."""
    ratio = max(image.size) / _BLUR_SIDE
    if ratio <= 1:
        return image
    size = max(int(image.width // ratio), 1), max(int(image.height // ratio), 1)
    resized = resize if image.mode in ("L", "RGB") else resize_rows_first
    return resized(image, size, "bicubic", (0, 0, *image.size))


def _on_white(image: Image.Image) -> Image.Image:
    """Draws a picture on white, or on black if it is invisible on white; returns L or RGB."""
    if image.mode in ("L", "RGB"):
        return image
    opaque = image.convert("RGBA")
    for background in ("white", "black"):
        laid = Image.alpha_composite(Image.new("RGBA", image.size, background), opaque).convert("RGB")
        if min(low for low, _ in laid.getextrema()) < _NEARLY_WHITE:  # type: ignore[misc]
            break
    return laid.convert("L") if image.mode == "LA" else laid


def _mean_brightness(means: Array) -> float:
    red, green, blue = means[:3] if len(means) >= 3 else means[:1].repeat(3)
    weighted = _WEIGHTS[0] * red**2 + _WEIGHTS[1] * green**2 + _WEIGHTS[2] * blue**2
    return math.sqrt(weighted) / 255


def _percentiles(counts: Array) -> Iterator[float]:
    """Yields percentiles of brightness, interpolated between two values like `numpy.percentile`."""
    cumulated = np.cumsum(counts)
    last = int(cumulated[-1]) - 1
    for share in _PERCENTILES:
        place = last * share / 100
        below = int(place)
        low, high = np.searchsorted(cumulated, (below, min(below + 1, last)), side="right").tolist()
        left, right = (math.sqrt(level / (_LEVELS - 1)) for level in (low, high))
        yield min(1.0, left + (right - left) * (place - below))


def _entropy(counts: Array) -> float:
    """Returns the entropy of a histogram, in bits."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log2(shares)).sum())


def _sharpness(gray: Image.Image) -> float:
    edges = np.asarray(gray.filter(ImageFilter.FIND_EDGES), np.float32).ravel()
    sharp = 1 - math.exp(-_SHARPNESS_RATE * _deviation(edges))
    spread = 1 - math.exp(-_SHARPNESS_RATE * _deviation(np.array(gray.histogram(), np.float32)))
    return min(1.0, sharp + (spread if spread > _SPREAD_COUNTS else 0.0))


def _deviation(values: Array) -> float:
    """Returns the standard deviation of at most 4,096 integers below 4,097."""
    mean = float(values.sum(dtype=np.float64)) / len(values)
    return math.sqrt(max(0.0, float(values @ values) / len(values) - mean**2))
