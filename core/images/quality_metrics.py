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
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from shardwright.core.images.color import expanded, strips
from shardwright.core.images.geometry import resize, resize_rows_first
from shardwright.core.images.near_duplicates import hash_and_patch
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.pictures import ChannelSamples, ImageQuality, Samples
from shardwright.schemas.sketches import FLOAT32_BITS
from shardwright.schemas.units import beside_limit

Array = npt.NDArray[Any]

_PERCENTILES = (5, 99)
#: Bits of entropy for an information of 1, and the rate at which sharpness approaches 1.
_FULL_BITS = 10.0
_SHARPNESS_RATE = 0.01
#: A spread of gray values below this adds nothing to sharpness.
_SPREAD_COUNTS = 0.18
_BLUR_SIDE = 64
_SCORE_DIGITS = 4
#: Bytes of the digest of a picture's pixels, which is equal for equal pictures only.
_DIGEST_BYTES = 16
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
#: Number of samples that are added up at once. Sums of so many squares of uint16 are exact in float64.
AT_ONCE = 1 << 20
#: Bits of the fraction of a float32.
_FRACTION_BITS = 24
#: Fractions are squared in halves of this many bits, because float64 cannot hold sums of their squares.
_HALF_BITS = 12


class _Issue(NamedTuple):
    """An issue that a score shows.

    Attributes:
      score: Position of the score in `SCORES`.
      limit: Pictures with a lower score have the issue; those that are too light have a higher one.
      sentence: Describes the issue, given the score and the limit.
      scale: Factor of both in the sentence.
    """

    score: int
    limit: float
    sentence: str
    scale: float = 1


_ISSUES: Mapping[FindingCode, _Issue] = {
    FindingCode.DARK: _Issue(2, 0.32, "99% of its pixels are darker than {} of white (limit {})"),
    FindingCode.LIGHT: _Issue(1, 0.95, "95% of its pixels are brighter than {} of white (limit {})"),
    FindingCode.BLURRY: _Issue(4, 0.29, "its sharpness is {} of 1 (limit {})"),
    FindingCode.LOW_INFORMATION: _Issue(3, 0.3, "its pixels have {} bits of entropy (limit {})", _FULL_BITS),
    FindingCode.ODD_ASPECT_RATIO: _Issue(5, 0.35, "its shorter side is {} of the longer (limit {})"),
}


def measure_quality(image: Image.Image) -> ImageQuality:
    """Measures a decoded image.

    Args:
      image: Image of any mode and size. It is processed in parts, so little memory is needed.
    """
    width, height = image.size
    rows = max(1, STRIP_PIXELS // width)
    x_factor, y_factor = (max(1, side // _REDUCED_SIDE) for side in image.size)
    rows = max(y_factor, rows - rows % y_factor)
    step = _step(width, height)
    counts: Array | None = None
    bright = np.zeros(_LEVELS, np.int64)
    digest = hashlib.sha256(f"{image.mode} {width} {height} ".encode())
    if "P" in image.mode:
        digest.update(bytes(image.getpalette("RGBA") or ()))
    gray = True
    thumb: Image.Image | None = None
    for top, strip in strips(image, rows):
        data = strip.tobytes()
        digest.update(data)
        plain = eight_bits(strip)
        histogram = np.array(plain.histogram(), np.float64)
        counts = histogram if counts is None else counts + histogram
        bands = len(histogram) // 256
        if bands >= 3:
            pixels = np.frombuffer(data if plain is strip else plain.tobytes(), np.uint8).reshape(-1, bands)
            red, green, blue = histogram.reshape(-1, 256)[:3]
            gray = gray and np.array_equal(red, green) and np.array_equal(green, blue)
            gray = gray and bool((pixels[:, :2] == pixels[:, 1:3]).all())
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
    means = sums / (width * height)
    red, green, blue = means[:3] if len(means) >= 3 else means[:1].repeat(3)
    weighted = _WEIGHTS[0] * red**2 + _WEIGHTS[1] * green**2 + _WEIGHTS[2] * blue**2
    shares = counts[counts > 0] / counts.sum()
    entropy = float(-(shares * np.log2(shares)).sum())
    scores = (
        math.sqrt(weighted) / 255,
        *_percentiles(bright),
        min(1.0, entropy / _FULL_BITS),
        _sharpness(thumb.convert("L")),
        min(width, height) / max(width, height),
    )
    return ImageQuality(
        tuple(map(int, sums)),
        tuple(map(int, squares)),
        width * height,
        digest.digest()[:_DIGEST_BYTES],
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
        digest = checksum.digest()[:_DIGEST_BYTES]
    return quality._replace(digest=digest, samples=sum_samples(pixels))


def hashes_of(image: Image.Image) -> tuple[bytes, bytes]:
    """Returns the hash and the patch of a decoded image, as `measure_quality` computes them.

    Args:
      image: Image of any mode, in memory as a whole.
    """
    return hash_and_patch(_on_white(_shrink(eight_bits(image))))


def _issues(scores: tuple[float, ...], gray: bool) -> Iterator[str]:
    """Yields the codes of a picture's issues."""
    for code, issue in _ISSUES.items():
        value = scores[issue.score]
        if value > issue.limit if code is FindingCode.LIGHT else value < issue.limit:
            yield code.value
    if gray:
        yield FindingCode.GRAYSCALE.value


def score_of_issue(code: str, scores: tuple[float, ...]) -> float:
    """Returns how usual a picture is with respect to an issue that a score shows, from 0 for the worst to 1.

    Args:
      code: Code from `ImageQuality.issues`.
      scores: Values of `ImageQuality.scores`.
    """
    value = scores[_ISSUES[FindingCode(code)].score]
    return round(1 - value if code == FindingCode.LIGHT else value, _SCORE_DIGITS)


def describe_issue(code: str, scores: tuple[float, ...]) -> str:
    """Describes an issue of a picture in one sentence.

    Args:
      code: Code from `ImageQuality.issues`.
      scores: Values of `ImageQuality.scores`.
    """
    if code == FindingCode.GRAYSCALE:
        return "it has no colors"
    issue = _ISSUES[FindingCode(code)]
    return issue.sentence.format(*beside_limit(scores[issue.score], issue.limit, issue.scale))


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


def eight_bits(image: Image.Image) -> Image.Image:
    """Converts a picture to L, LA, RGB or RGBA."""
    mode = image.mode
    if mode in ("L", "RGB", "RGBA", "LA"):
        return image
    if mode in ("I", "F") or mode.startswith("I;"):
        values = np.asarray(image, np.float64)
        scaled = np.nan_to_num(values) * (255 if mode == "F" else 255 / 65535)
        return Image.fromarray(np.clip(np.rint(scaled), 0, 255).astype(np.uint8))
    plain = image.convert("L") if mode == "1" else expanded(image)
    if plain.mode == "LAB":
        return plain.getchannel(0)  # its lightness
    return plain if plain.mode in ("L", "RGB", "RGBA", "LA") else plain.convert("RGB")


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


def _sharpness(gray: Image.Image) -> float:
    edges = np.asarray(gray.filter(ImageFilter.FIND_EDGES), np.float32).ravel()
    sharp = 1 - math.exp(-_SHARPNESS_RATE * _deviation(edges))
    spread = 1 - math.exp(-_SHARPNESS_RATE * _deviation(np.array(gray.histogram(), np.float32)))
    return min(1.0, sharp + (spread if spread > _SPREAD_COUNTS else 0.0))


def _deviation(values: Array) -> float:
    """Returns the standard deviation of at most 4,096 integers below 4,097."""
    mean = float(values.sum(dtype=np.float64)) / len(values)
    return math.sqrt(max(0.0, float(values @ values) / len(values) - mean**2))


def sum_samples(pixels: Array) -> Samples:
    """Returns the exact sums over each channel of a picture.

    Args:
      pixels: HxWxC of uint8, uint16 or float32.
    """
    rows = pixels.reshape(-1, pixels.shape[-1])
    channels = [_channel(rows[:, channel]) for channel in range(rows.shape[1])]
    return Samples(pixels.dtype.name, tuple(channels))


def _channel(values: Array) -> ChannelSamples:
    count = total = squares = nan = infinite = 0
    low: float = np.inf
    high: float = -np.inf
    for begin in range(0, len(values), AT_ONCE):
        part = np.ascontiguousarray(values[begin : begin + AT_ONCE])
        if part.dtype.kind == "f":
            finite = np.isfinite(part)
            if not finite.all():
                part_nan = int(np.isnan(part).sum())
                nan += part_nan
                infinite += len(part) - int(finite.sum()) - part_nan
                part = part[finite]
        if not len(part):
            continue
        count += len(part)
        zero = part.dtype.type(0)  # turns -0.0 into 0.0
        low, high = min(low, (part.min() + zero).item()), max(high, (part.max() + zero).item())
        if part.dtype.kind == "f":
            part_total, part_squares = _sums_of_floats(part)
        else:
            exact = part.astype(np.float64)
            part_total, part_squares = int(exact.sum()), int(np.dot(exact, exact))
        total += part_total
        squares += part_squares
    if not count:
        low = high = 0
    return ChannelSamples(count, total, squares, low, high, nan, infinite)


def _sums_of_floats(values: Array) -> tuple[int, int]:
    """Returns the sum of finite float32 times 2^149, and the sum of their squares times 2^298.

    A float32 is a whole number of 24 bits times a power of two. Numbers with the same power are added in
    float64, which is exact for as many as there are.
    """
    fractions, powers = np.frexp(values)
    whole = np.ldexp(fractions.astype(np.float64), _FRACTION_BITS)
    shifts = powers + FLOAT32_BITS - 1

    def summed(weights: Array, factor: int) -> int:
        sums = np.bincount(shifts, weights)
        return sum(int(sums[shift]) << factor * shift for shift in np.flatnonzero(sums).tolist())

    upper, lower = np.divmod(np.abs(whole), 1 << _HALF_BITS)
    squares = summed(upper * upper, 2) << 2 * _HALF_BITS
    squares += summed(upper * lower, 2) << _HALF_BITS + 1
    squares += summed(lower * lower, 2)
    return summed(whole, 1) >> _FRACTION_BITS - 1, squares >> 2 * (_FRACTION_BITS - 1)
