"""Draws pictures small and side by side, with a caption under each."""

from __future__ import annotations

import colorsys
import math
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from shardwright.core.images.color import to_color
from shardwright.core.images.decode import load, load_checked, no_image, open_image, upright
from shardwright.core.images.deep_pixels import decode_raw, displayed
from shardwright.core.images.faults import PillowSettings, corrupt
from shardwright.schemas.bounds import DEFAULT_BOUNDS, Bounds
from shardwright.schemas.errors import NotACandidate
from shardwright.schemas.sample_types import SAMPLE_TYPES

SIDE = 128
_GAP = 8
#: Radius of a key point in pixels.
_POINT_RADIUS = 3
_FONT_SIZE = 13
_CAPTION_HEIGHT = 20
_WHITE, _INK, _FAINT = (255, 255, 255), (32, 32, 32), (214, 214, 214)
#: Larger pictures are not drawn, to save memory; this is Pillow's own limit.
_MAX_PIXELS = 89_478_485
#: Golden ratio: its multiples are spread evenly on a circle of hues.
_GOLDEN = 0.618033988749895
#: Distance in hue between instances of a class; differs from the hues of nearby classes.
_INSTANCE = 257
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


class Tile(NamedTuple):
    """A picture and its caption; if there is no picture, only `name` is drawn.

    Attributes:
      image: RGB, at most `SIDE` on each side; None if it could not be decoded.
      name: Text under the picture.
      number: Number drawn before a name that has letters missing in the font.
    """

    image: Image.Image | None
    name: str
    number: str = ""


def thumbnail(encoded: bytes, bounds: Bounds = DEFAULT_BOUNDS, side: int = SIDE) -> Image.Image:
    """Decodes a stored picture, upright and in color.

    Args:
      encoded: The picture.
      bounds: Limits on the parts of the file.
      side: Pixels of the longer side of the thumbnail.

    Raises:
      ImageFault: If it cannot be decoded.
    """
    try:
        opened = open_image(encoded, "image", _MAX_PIXELS, bounds)
    except NotACandidate:
        raise no_image(encoded) from None
    shorter = min(opened.image.size)
    opened.reduce(next((factor for factor in (8, 4, 2) if shorter >= 2 * side * factor), 1))
    return _fitted(
        upright(load_checked(opened, _MAX_PIXELS, keep_damaged=True).image, opened.orientation), side
    )


def with_boxes(image: Image.Image, boxes: Sequence[tuple[float, ...]], ids: Sequence[int]) -> Image.Image:
    """Returns a thumbnail with boxes drawn on it.

    Args:
      image: Result of `thumbnail`.
      boxes: xmin, ymin, xmax, ymax, as shares of width and height.
      ids: Class of each box, which decides its color.
    """
    marked = image.copy()
    draw = ImageDraw.Draw(marked)
    for box, number in zip(boxes, ids):
        if not all(map(math.isfinite, box)) or box[0] > box[2] or box[1] > box[3]:
            continue
        low, high = ((min(max(x, 0), 1), min(max(y, 0), 1)) for x, y in (box[:2], box[2:]))
        right, lower = image.width - 1, image.height - 1
        corners = (low[0] * right, low[1] * lower, high[0] * right, high[1] * lower)
        draw.rectangle(corners, outline=_color_of(number), width=2)
    return marked


def with_points(
    image: Image.Image, points: Sequence[tuple[float, float, int]], ids: Sequence[int]
) -> Image.Image:
    """Returns a thumbnail with key points drawn on it: visible ones filled, hidden ones as rings.

    Args:
      image: Result of `thumbnail`.
      points: X and y as shares of width and height, and visibility, of the points of all objects in turn.
      ids: Class of each object, which decides the color of its points.
    """
    marked = image.copy()
    draw = ImageDraw.Draw(marked)
    each = max(1, len(points) // max(1, len(ids)))
    for place, (x, y, visibility) in enumerate(points):
        if visibility not in (1, 2) or not (0 <= x <= 1 and 0 <= y <= 1):
            continue
        center = x * (image.width - 1), y * (image.height - 1)
        color = _color_of(ids[min(place // each, len(ids) - 1)]) if ids else _color_of(1)
        draw.circle(center, _POINT_RADIUS, fill=color if visibility == 2 else None, outline=color)
    return marked


def with_masks(image: Image.Image, masks: Sequence[bytes], bounds: Bounds = DEFAULT_BOUNDS) -> Image.Image:
    """Returns a thumbnail tinted with the colors of its classes or segments.

    Args:
      image: Result of `thumbnail`.
      masks: Mask of classes, and mask of instances if there is one.
      bounds: Limits on the parts of a mask.

    Raises:
      ImageFault: If a mask cannot be decoded.
    """
    numbers = np.zeros((image.height, image.width), np.int64)
    for place, mask in enumerate(masks):
        whole = load(open_image(mask, "mask.png", _MAX_PIXELS, bounds), _MAX_PIXELS)
        has_ids = whole.mode in ("P", "1") or whole.mode.startswith("I")
        ids = Image.fromarray(np.asarray(whole if has_ids else whole.convert("L")).astype(np.int32))
        numbers += np.asarray(ids.resize(image.size, Image.Resampling.NEAREST), np.int64) * _INSTANCE**place
    present, places = np.unique(numbers, return_inverse=True)
    colors = np.array([_color_of(int(number)) for number in present], np.uint8)
    return Image.blend(image, Image.fromarray(colors[places].reshape(*image.size[::-1], 3)), 0.5)


def _color_of(number: int) -> tuple[int, int, int]:
    """Returns a color that differs clearly from those of nearby numbers; black for nothing."""
    if number == 0:
        return (0, 0, 0)
    red, green, blue = colorsys.hsv_to_rgb(number * _GOLDEN % 1, 1, 0.9 if number % 2 else 0.7)
    return round(red * 255), round(green * 255), round(blue * 255)


def raw_thumbnail(data: bytes, shape: Sequence[int], dtype: str = "", side: int = SIDE) -> Image.Image:
    """Returns the thumbnail of raw pixels, in rows HxWxC, little-endian.

    Args:
      data: The pixels.
      shape: Height, width and number of channels.
      dtype: Type of the samples. Empty for uint8 with 1, 3 or 4 channels, of which the fourth is alpha.
      side: Pixels of the longer side of the thumbnail.

    Raises:
      ImageFault: If the number of bytes does not fit the sizes, or the type is unknown.
    """
    height, width, channels = shape
    if (dtype and dtype not in SAMPLE_TYPES) or (not dtype and channels not in _MODES) or min(shape) < 1:
        raise corrupt(f"{len(data)} raw bytes are not {height} x {width} x {channels}")
    samples = decode_raw(data, dtype or "uint8", (height, width, channels))
    image = displayed(samples) if dtype else Image.frombytes(_MODES[channels], (width, height), data)
    return _fitted(image, side)


def _fitted(image: Image.Image, side: int) -> Image.Image:
    # Small pictures are enlarged by whole factors, so that their pixels stay visible.
    resample = Image.Resampling.NEAREST if 2 * max(image.size) <= side else Image.Resampling.BICUBIC
    colored = to_color(image, "rgb", _WHITE)
    width, height = colored.size
    scale = side / max(width, height)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return colored.resize(size, resample, reducing_gap=2.0 if scale < 1 else None)


@PillowSettings(_MAX_PIXELS)  # a caller may have set a limit that captions exceed
def draw_sheet(tiles: Sequence[Tile]) -> Image.Image:
    """Draws the tiles in a grid, row by row.

    A letter that is missing in the font is drawn as its base letter, or as `?`.
    """
    columns = max(1, math.ceil(math.sqrt(len(tiles))))
    rows = math.ceil(len(tiles) / columns)
    step_x, step_y = SIDE + _GAP, SIDE + _CAPTION_HEIGHT + _GAP
    sheet = Image.new("RGB", (columns * step_x + _GAP, rows * step_y + _GAP), _WHITE)
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(_FONT_SIZE)
    assert isinstance(font, ImageFont.FreeTypeFont)  # as a size is given
    for i, tile in enumerate(tiles):
        left, top = _GAP + i % columns * step_x, _GAP + i // columns * step_y
        frame = (left, top, left + SIDE - 1, top + SIDE - 1)
        if tile.image is None:
            draw.rectangle(frame, outline=_FAINT)
            draw.line(frame, fill=_FAINT)
            draw.line((frame[0], frame[3], frame[2], frame[1]), fill=_FAINT)
        else:
            sheet.paste(ImageOps.pad(tile.image, (SIDE, SIDE), color=_WHITE), (left, top))
        caption = _caption(font, tile)
        shift = (SIDE - font.getlength(caption)) / 2
        draw.text((left + max(shift, 0), top + SIDE + 3), caption, fill=_INK, font=font)
    return sheet


def _caption(font: ImageFont.FreeTypeFont, tile: Tile) -> str:
    """Returns a caption with letters that the font has, cut to the width of a tile."""
    caption = "".join(_drawable(font, char) for char in tile.name)
    if tile.number and "?" in caption and "?" not in tile.name:
        caption = f"{tile.number} {caption}"
    if font.getlength(caption) <= SIDE:
        return caption
    caption = caption[:SIDE]  # each letter takes a pixel
    while font.getlength(caption + "...") > SIDE:
        caption = caption[:-1]
    return caption + "..."


def _drawable(font: ImageFont.FreeTypeFont, char: str) -> str:
    if not char.isprintable():
        return " "
    if _has(font, char):
        return char
    plain = "".join(c for c in unicodedata.normalize("NFKD", char) if not unicodedata.combining(c))
    return plain if plain and all(_has(font, c) for c in plain) else "?"


def _has(font: ImageFont.FreeTypeFont, char: str) -> bool:
    if char.isascii():
        return True
    # No font has U+FFFF, so its picture is that of all missing letters.
    mask, lacking = font.getmask(char), font.getmask("\uffff")
    return mask.size != lacking.size or bytes(mask) != bytes(lacking)
