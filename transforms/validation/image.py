"""Checks the picture of a record against what the record says of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from PIL import Image

from shardwright.schemas.bounds import DEFAULT_BOUNDS, Bounds
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.dataset import PictureShape
from shardwright.schemas.errors import ImageFault, NotACandidate
from shardwright.schemas.layouts import FeatureRole
from shardwright.schemas.units import counted
from shardwright.transforms.images.convert import BYTES_PER_PIXEL, channels_of
from shardwright.transforms.images.decode import decoder_bytes, load_checked, open_image, reduce_jpeg
from shardwright.transforms.images.encode import FORMAT_NAMES
from shardwright.transforms.images.signatures import HEAD_BYTES, kind_of
from shardwright.transforms.records.build import GREY, RGB
from shardwright.transforms.records.record_schema import Problem

#: Spellings of `image/format` in wide use, and the one that is compared.
_SPELLINGS = {"jpeg": "jpg"}
SIDES = (FeatureRole.HEIGHT, FeatureRole.WIDTH, FeatureRole.CHANNELS)
#: A stored picture may be as large as its writer chose; only absurd headers are refused.
MAX_PIXELS = 2**31 - 1
#: The largest by which the JPEG decoder reduces.
_REDUCTION = 8
_NOT_AN_IMAGE = "its bytes are those of no image format that can be decoded"


class Claims(NamedTuple):
    """What is said of a picture.

    Attributes:
      sides: height, width and channels, each time that a record says some of them, or all promise them.
      format: as the record spells it; None where it says none.
      colorspace: RGB or Grayscale; None where the record does not say.
      pixels: whether all records promise bare pixels.
    """

    sides: Sequence[PictureShape] = ()
    format: str | None = None
    colorspace: bytes | None = None
    pixels: bool = False


class Seen(NamedTuple):
    """What the check of a picture showed.

    Attributes:
      problems: what is wrong.
      image: the decoded picture, maybe reduced; None if it could not be decoded.
      format: jpg, png, webp, raw, ... as its bytes say.
      size: width and height of the stored picture, in pixels.
    """

    problems: list[Problem]
    image: Image.Image | None
    format: str
    size: tuple[int, int] = (0, 0)


def check_image(
    encoded: bytes,
    claims: Claims,
    whole: bool = True,
    reserve: Callable[[int], object] | None = None,
    damaged_too: bool = False,
    bounds: Bounds = DEFAULT_BOUNDS,
) -> Seen:
    """Decodes a picture and compares it with what is said of it.

    Args:
      encoded: the picture.
      claims: what is said of it.
      whole: whether its pixels are wanted. All of a JPEG's data is read and decoded either way, but only an
        eighth of each side is then transformed and coloured, in which nothing can go wrong: on thousands of
        sound and damaged files the verdict is the same, and a photograph takes half of the time.
      reserve: called with the memory that the decoded picture needs, in bytes.
      damaged_too: whether pictures with missing or damaged data are meant to be there.
      bounds: the most parts that the picture may have.
    """
    claimed = claims.format
    if claimed == "raw" or (claims.pixels and claimed is None):
        problems = list(_check_pixels(len(encoded), claims.sides))
        image = None if problems else _bare_picture(encoded, claims.sides)
        if image is not None:
            problems += _check_colorspace(channels_of(image), claims)
        return Seen(problems, image, "raw", image.size if image is not None else (0, 0))
    problems = []
    kind = kind_of(encoded[:HEAD_BYTES])
    name = FORMAT_NAMES.get(kind, kind) if kind is not None else ""
    if claimed is not None and name and claimed != name:
        spelled = claimed.lower()
        if _SPELLINGS.get(spelled, spelled) != name:
            message = f"the image is {name} but the record says {claimed}"
            problems.append((FindingCode.FORMAT_MISMATCH, message))
    try:
        opened = open_image(encoded, "image", MAX_PIXELS, bounds)
        size = opened.image.size
        reduced = not whole and reduce_jpeg(opened, _REDUCTION) > 1
        if reserve is not None:
            reserve(max(math.prod(opened.image.size) * BYTES_PER_PIXEL, decoder_bytes(opened)))
        image = load_checked(opened, MAX_PIXELS, damaged_too).image
    except NotACandidate:
        return Seen([*problems, (FindingCode.UNDECODABLE, _NOT_AN_IMAGE)], None, name)
    except ImageFault as fault:
        return Seen([*problems, (FindingCode.UNDECODABLE, fault.message)], None, name)
    size = size if reduced else image.size
    truth = (size[1], size[0], channels_of(image))
    for claim in claims.sides:
        if claim != truth:
            problems += _size_problems(truth, claims.sides)
            break
    problems += _check_colorspace(truth[2], claims)
    return Seen(problems, image, name, size)


def _size_problems(truth: tuple[int, int, int], sides: Sequence[PictureShape]) -> Iterator[Problem]:
    for role, true, claims in zip(SIDES, truth, zip(*sides)):
        for claim in dict.fromkeys(claims):
            if claim is not None and claim != true:
                yield (
                    FindingCode.SIZE_MISMATCH,
                    f"the image's {role.value} is {true} but the record says {claim}",
                )


def _check_colorspace(channels: int, claims: Claims) -> Sequence[Problem]:
    if claims.colorspace is None:
        return ()
    true = GREY if channels < 3 else RGB
    if claims.colorspace == true:
        return ()
    said = claims.colorspace.decode("utf-8", "replace")
    said_of_image = f"{counted(channels, 'channel')}, which is {true.decode()}"
    message = f"the image has {said_of_image}, but the record says {said}"
    return ((FindingCode.FORMAT_MISMATCH, message),)


def _bare_picture(data: bytes, said: Sequence[PictureShape]) -> Image.Image | None:
    """Returns bare pixels as a picture, if their sides are said."""
    height, width, channels = (
        next((claim for claim in claims if claim is not None), None) for claims in zip(*said)
    )
    if not height or not width:
        return None
    mode = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[channels or len(data) // (height * width)]
    return Image.frombytes(mode, (width, height), data)


def _check_pixels(size: int, said: Sequence[PictureShape]) -> Iterator[Problem]:
    """Checks that bare pixels can be of the sides that are said of them."""
    sides: list[int | None] = []
    for role, claims in zip(SIDES, zip(*said)):
        known = list(dict.fromkeys(claim for claim in claims if claim is not None))
        if len(known) > 1:
            yield FindingCode.SIZE_MISMATCH, f"its {role.value} is {known[0]} and {known[1]}"
            return
        sides.append(known[0] if known else None)
    height, width, channels = sides
    if height is None or width is None:
        return
    if size not in [height * width * count for count in ((1, 2, 3, 4) if channels is None else (channels,))]:
        shown = " x ".join("any" if side is None else str(side) for side in sides)
        yield FindingCode.SIZE_MISMATCH, f"{size} raw bytes are not {shown}"
