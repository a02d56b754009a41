"""Checks the image of a record against the record's other features."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from shardwright.core.images.convert import BYTES_PER_PIXEL, channels_of
from shardwright.core.images.decode import load_checked, load_samples, open_image
from shardwright.core.images.deep_pixels import decode_raw, displayed
from shardwright.core.images.quality_metrics import eight_bits
from shardwright.core.images.signatures import HEAD_BYTES, kind_of
from shardwright.core.records.build import GRAY, RGB
from shardwright.core.records.record_schema import Problem
from shardwright.schemas.bounds import DEFAULT_BOUNDS, Bounds
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.dataset import PictureShape
from shardwright.schemas.errors import ImageFault, NotACandidate
from shardwright.schemas.feature_roles import PICTURE_SIDES
from shardwright.schemas.image_formats import FORMAT_NAMES
from shardwright.schemas.sample_types import SAMPLE_TYPES
from shardwright.schemas.units import counted, shape_text

#: Common spellings of `image/format`, and the spelling that is compared.
_SPELLINGS = {"jpeg": "jpg"}
#: The writer may have stored images of any size, so only absurd headers are refused.
MAX_PIXELS = 2**31 - 1
#: Largest factor by which the JPEG decoder reduces.
_REDUCTION = 8
#: Formats of stored images. They have 8 bits per sample, unless it is a PNG of 16 bits.
_STORED = frozenset(("jpg", "png", "webp"))
#: Bytes in memory for each raw sample while it is measured and displayed.
_BARE_BYTES = 4
#: Largest number of channels of raw pixels.
_MAX_CHANNELS = 16
#: Message for bytes that no decoder accepts.
NOT_AN_IMAGE = "its bytes are not in an image format that can be decoded"


class DeclaredImage(NamedTuple):
    """What a record and the schema declare about an image.

    Attributes:
      sides: Height, width and channels from each source: the record's features, or the schema.
      format: Format as the record spells it. None if the record does not say.
      colorspace: RGB or Grayscale. None if the record does not say.
      pixels: Whether the schema says that all images are raw pixels.
      dtype: Type of the samples. None if records do not say, because all are uint8.
    """

    sides: Sequence[PictureShape] = ()
    format: str | None = None
    colorspace: bytes | None = None
    pixels: bool = False
    dtype: str | None = None


class Seen(NamedTuple):
    """Result of checking an image.

    Attributes:
      problems: Problems that were found.
      image: Decoded image as it is displayed, possibly reduced. None if it could not be decoded.
      format: Format detected from the bytes: jpg, png, webp, raw, ...
      size: Width and height of the stored image in pixels.
      samples: Stored samples without transparency, HxWxC. None unless the full pixels are needed and the
        record states the type of its samples.
    """

    problems: list[Problem]
    image: Image.Image | None
    format: str
    size: tuple[int, int] = (0, 0)
    samples: npt.NDArray[Any] | None = None


def check_image(
    encoded: bytes,
    declared: DeclaredImage,
    whole: bool = True,
    reserve: Callable[[int], object] = nullcontext,
    damaged_too: bool = False,
    bounds: Bounds = DEFAULT_BOUNDS,
) -> Seen:
    """Decodes an image and compares it with what is declared about it.

    Args:
      encoded: Bytes of the image.
      declared: What its record declares about it.
      whole: Whether the full pixels are needed. All data of a JPEG is read and decoded either way, but
        otherwise only an eighth of each side is transformed and colored, which cannot fail. On thousands of
        intact and damaged files the verdict is the same, and a photograph takes half of the time.
      reserve: Function that is called with the memory that the decoded image needs, in bytes.
      damaged_too: Whether images with missing or damaged data are allowed.
      bounds: Largest number of parts that the image may have.
    """
    declared_format = declared.format
    if declared_format == "raw" or (
        declared_format is None and (declared.pixels or declared.dtype == "float32")
    ):
        return _check_bare(encoded, declared, whole, reserve)
    problems = []
    kind = kind_of(encoded[:HEAD_BYTES])
    name = FORMAT_NAMES.get(kind, kind) if kind is not None else ""
    if declared_format is not None and name and declared_format != name:
        spelled = declared_format.lower()
        if _SPELLINGS.get(spelled, spelled) != name:
            message = f"the image is {name} but the record says {declared_format}"
            problems.append((FindingCode.FORMAT_MISMATCH, message))
    try:
        opened = open_image(encoded, "image", MAX_PIXELS, bounds, keep_depth=declared.dtype is not None)
        size = opened.image.size
        reduced = not whole and opened.reduce(_REDUCTION) > 1
        reserve(max(math.prod(opened.image.size) * BYTES_PER_PIXEL, opened.decoder_bytes()))
        if opened.deep is not None:  # more than 8 bits per sample
            stored = load_samples(opened, MAX_PIXELS)
            height, width, channels = stored.shape
            problems += _declaration_problems((height, width, channels), declared, opened.deep.dtype)
            colors = stored[:, :, :-1] if opened.deep.alpha else stored
            shown = displayed(colors if whole else colors[:1, :1])  # nobody looks at a part
            return Seen(problems, shown, name, (width, height), colors if whole else None)
        image = load_checked(opened, MAX_PIXELS, damaged_too).image
        samples = _samples_of(image) if whole and declared.dtype is not None else None
    except NotACandidate:
        return Seen([*problems, (FindingCode.UNDECODABLE, NOT_AN_IMAGE)], None, name)
    except ImageFault as fault:
        return Seen([*problems, (FindingCode.UNDECODABLE, fault.message)], None, name)
    size = size if reduced else image.size
    truth = (size[1], size[0], channels_of(image))
    problems += _declaration_problems(truth, declared, "uint8" if name in _STORED else None)
    return Seen(problems, image, name, size, samples=samples)


def _declaration_problems(
    truth: tuple[int, int, int], declared: DeclaredImage, dtype: str | None
) -> Iterator[Problem]:
    """Yields what a record declares wrongly about its image.

    Args:
      truth: Height, width and channels of the image.
      declared: What its record declares about it.
      dtype: Type of its samples. None if it is not known.
    """
    for role, true, sides_of_role in zip(PICTURE_SIDES, truth, zip(*declared.sides)):
        for side in dict.fromkeys(sides_of_role):
            if side is not None and side != true:
                message = f"the image's {role.value} is {true} but the record says {side}"
                yield FindingCode.SIZE_MISMATCH, message
    yield from _check_colorspace(truth[2], declared)
    if dtype is not None and declared.dtype in SAMPLE_TYPES and declared.dtype != dtype:
        message = f"the samples of the image are {dtype}, but the record says {declared.dtype}"
        yield FindingCode.FORMAT_MISMATCH, message


def _samples_of(image: Image.Image) -> npt.NDArray[Any]:
    """Returns the samples of a decoded image with 8 bits, without transparency, HxWxC."""
    samples = np.asarray(eight_bits(image))
    samples = samples.reshape(*samples.shape[:2], -1)
    return samples if samples.shape[2] % 2 else samples[:, :, :-1]


def _check_bare(
    encoded: bytes, declared: DeclaredImage, whole: bool, reserve: Callable[[int], object]
) -> Seen:
    """Compares raw pixels with what is declared about them."""
    if declared.dtype is not None and declared.dtype not in SAMPLE_TYPES:
        return Seen([], None, "raw")  # the wrong type is reported, and nothing else can be known
    sides = _sides_of_bare(len(encoded), declared.sides, declared.dtype)
    if sides is None or isinstance(sides, str):
        problems = [(FindingCode.SIZE_MISMATCH, sides)] if sides else []
        return Seen(problems, None, "raw")
    height, width, channels = sides
    problems = list(_check_colorspace(channels, declared))
    if declared.dtype is None:
        image = Image.frombytes(_MODES[channels], (width, height), encoded)
        return Seen(problems, image, "raw", image.size)
    reserve(math.prod(sides) * _BARE_BYTES)
    samples = decode_raw(encoded, declared.dtype, sides)
    picture = displayed(samples if whole else samples[:1, :1])  # nobody looks at a part
    return Seen(problems, picture, "raw", (width, height), samples if whole else None)


def _check_colorspace(channels: int, declared: DeclaredImage) -> Iterator[Problem]:
    true = GRAY if channels < 3 else RGB
    if declared.colorspace is not None and declared.colorspace != true:
        colorspace = declared.colorspace.decode("utf-8", "replace")
        channels_text = f"{counted(channels, 'channel')}, which is {true.decode()}"
        message = f"the image has {channels_text}, but the record says {colorspace}"
        yield FindingCode.FORMAT_MISMATCH, message


#: Number of channels of raw uint8 pixels -> Pillow's mode.
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def _sides_of_bare(
    size: int, shapes: Sequence[PictureShape], dtype: str | None
) -> tuple[int, int, int] | str | None:
    """Returns height, width and channels of raw pixels.

    Args:
      size: Number of bytes.
      shapes: Declared shapes.
      dtype: Type of the samples. None if records do not say, because all are uint8.

    Returns:
      The sides, or how the declared shapes or the number of bytes contradict each other. None if height or
      width is not declared.
    """
    sides: list[int | None] = []
    for role, values in zip(PICTURE_SIDES, zip(*shapes)):
        sizes = list(dict.fromkeys(value for value in values if value is not None))
        if len(sizes) > 1:
            return f"its {role.value} is {sizes[0]} and {sizes[1]}"
        sides.append(sizes[0] if sizes else None)
    height, width, channels = sides
    if height is None or width is None:
        return None
    most, itemsize = (max(_MODES), 1) if dtype is None else (_MAX_CHANNELS, np.dtype(dtype).itemsize)
    if channels is not None and not 0 < channels <= most:
        return f"the record says {channels} as the number of channels, but raw pixels have 1 to {most}"
    if height > 0 and width > 0:
        for count in range(1, most + 1) if channels is None else (channels,):
            if height * width * count * itemsize == size:
                return height, width, count
    kind = "" if dtype is None else f" of {dtype}"
    return f"{size} raw bytes are not {shape_text(sides)}{kind}"
