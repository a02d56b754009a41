"""Parses and prints the values of settings: sizes, shares, boxes, colors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction

from PIL import ImageColor

from shardwright.schemas.image_ref import NO_SPLIT

_UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
#: The name of a split.
SPLIT_NAME = re.compile(r"[A-Za-z0-9_]{1,64}\Z")
#: Special values of `label_depth`: all folders make the class name, or only the innermost one does.
ALL_FOLDERS, LAST_FOLDER = 0, -1
_FOLDERS = {"all": ALL_FOLDERS, "last": LAST_FOLDER}

#: Digits of the longest side of a picture.
_MAX_SIDE_DIGITS = 5
#: Ways to fit a picture into a target size (the terms of Pillow's ImageOps).
FITS = ("stretch", "contain", "cover", "fit", "pad")
#: Ways that give all pictures the same size.
SAME_SIZE_FITS = ("stretch", "fit", "pad")


def parse_size(text: str) -> int:
    """Parses a number of bytes: `128MB` (10^6), `64MiB` (2^20), `1000`.

    Raises:
      ValueError: If it is not a size of at least one byte.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(text))
    if not match or match[2].lower() not in _UNITS:
        raise ValueError(f"{text!r} is not a size; write 128MB, 64MiB or a number of bytes")
    value = int(Fraction(match[1]) * _UNITS[match[2].lower()])
    if value < 1:
        raise ValueError("must be at least one byte")
    return value


def format_size(value: float) -> str:
    """Prints a number of bytes for people, in units of powers of 1000."""
    for unit in ("B", "kB", "MB"):
        text = f"{value:.0f}" if unit == "B" else f"{value:.1f}"
        if abs(float(text)) < 1000:
            return f"{text} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Prints a number with its noun for people: `1 shard`, `3,781 images`, `2 classes`, `0 copies`.

    Args:
      number: The number.
      noun: Singular of the noun; other words may precede it.
      plural: Plural of the noun, if it is irregular.
    """
    if number == 1:
        return f"1 {noun}"
    if not plural and re.search(r"(s|x|ch|sh)\Z", noun):
        plural = f"{noun}es"
    elif not plural and re.search(r"[^aeiou]y\Z", noun):
        plural = f"{noun[:-1]}ies"
    return f"{number:,} {plural or f'{noun}s'}"


def listed(words: Iterable[str], most: int = 0, before_last: str = "and") -> str:
    """Returns words as a sentence names them; if `most` is positive, not more than this many.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c", "d"], 2)
    ('a, b and c', 'a, b and 2 more')
    """
    items = list(words)
    if 0 < most < len(items):
        items[most:] = [f"{len(items) - most:,} more"]
    return f" {before_last} ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))


def shape_text(shape: Iterable[int | None]) -> str:
    """Returns a shape for people, such as `any x 4`; None stands for any number."""
    return " x ".join("any" if size is None else str(size) for size in shape)


def is_or_are(number: int) -> str:
    """Returns the verb for a number of things."""
    return "is" if number == 1 else "are"


#: Maximum number of digits of a value printed beside a limit.
_MAX_DIGITS = 17


def beside_limit(value: float, limit: float, scale: float = 1, digits: int = 3) -> tuple[str, str]:
    """Prints a number and its limit for people, with enough digits to show which one is larger.

    The limit is printed as it was given. The number gets `digits` digits, or more if they are needed.

    Args:
      value: The number.
      limit: The limit that it is compared with.
      scale: Factor for both, such as 100 for percent.
      digits: Minimum number of significant digits.

    Returns:
      Both as text, such as `0.0304` and `0.03`.
    """
    bound = _plain(limit * scale, 12)
    for number in range(digits, _MAX_DIGITS + 1):
        text = _plain(value * scale, number)
        rounded = float(text)
        if (rounded > float(bound)) == (value > limit) and (rounded < float(bound)) == (value < limit):
            return text, bound
    return repr(value * scale), repr(limit * scale)


def decimals_apart(value: float, limit: float) -> int:
    """Returns the number of decimals needed to print two different numbers as different texts."""
    return next((d for d in range(_MAX_DIGITS) if f"{value:.{d}f}" != f"{limit:.{d}f}"), _MAX_DIGITS)


def percent(part: int, total: int) -> str:
    """Returns a share with two digits: `20%`, `6.1%`, `0.012%`; it is rounded neither to 0% nor to 100%."""
    value = 100 * part / total if part and total else 0.0
    if 99.5 <= value < 100:
        return "over 99%"
    if 0 < value < 0.001:
        return "under 0.001%"
    return f"{value:.0f}%" if value >= 9.95 else f"{value:.2g}%"


def percent_beside_limit(value: float, limit: float) -> tuple[str, str]:
    """Prints a share and its limit as percentages: 51% and 20%."""
    value_text, limit_text = beside_limit(value, limit, 100, digits=2)
    return f"{value_text}%", f"{limit_text}%"


def _plain(value: float, digits: int) -> str:
    """Returns a number with some significant digits, without an exponent if that is readable."""
    text = f"{value:.{digits}g}"
    return f"{float(text):.15g}" if "e+" in text and abs(value) < 1e15 else text


def parse_resize(text: str) -> tuple[int, int]:
    """Parses `224` (a square) or `320x240` (width x height, pixels).

    Raises:
      ValueError: If it is neither.
    """
    match = re.fullmatch(r"(\d+)(?:[xX](\d+))?", str(text).strip())
    sides = [side.lstrip("0") for side in (match[1], match[2] or match[1])] if match else []
    if not sides or not all(sides):
        raise ValueError(f"{text!r} is not a size in pixels; write 224 or 320x240")
    if any(len(side) > _MAX_SIDE_DIGITS for side in sides):
        raise ValueError(f"a side has at most {10**_MAX_SIDE_DIGITS - 1:,} pixels; write 224 or 320x240")
    return int(sides[0]), int(sides[1])


def parse_pixel_shape(text: str) -> tuple[int, int, int]:
    """Parses the shape of raw pixels: `28x28` or `32x32x3`, height x width x channels.

    Raises:
      ValueError: If it is not such a shape.
    """
    match = re.fullmatch(r"(\d{1,5})[xX](\d{1,5})(?:[xX]([134]))?", str(text).strip())
    if not match or not int(match[1]) or not int(match[2]):
        raise ValueError(f"{text!r} is not a shape; write 28x28 or 32x32x3 (height x width x channels)")
    return int(match[1]), int(match[2]), int(match[3] or 1)


def parse_label_depth(text: str) -> int:
    """Parses `1`, `2`, ..., `all` or `last`: the number of folders that make a class name.

    Returns:
      The number, or `ALL_FOLDERS` or `LAST_FOLDER`.

    Raises:
      ValueError: If it is none of them.
    """
    text = str(text).strip()
    if text in _FOLDERS:
        return _FOLDERS[text]
    if not re.fullmatch(r"[1-9][0-9]{0,2}", text):
        raise ValueError(f"{text!r} is not a number of folders; write 1, 2, 3, ..., all or last")
    return int(text)


def _values_of_splits(text: str, what: str) -> dict[str, str]:
    """Returns the name of a split -> text of its value, for `NAME=VALUE,...`; `what` says how to write it."""
    values: dict[str, str] = {}
    for part in str(text).split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not SPLIT_NAME.match(name):
            raise ValueError(f"{part.strip()!r} is not {what}")
        if name in values:
            raise ValueError(f"split {name!r} occurs twice")
        values[name] = value
    return values


def parse_splits(text: str) -> dict[str, Fraction]:
    """Parses `train=0.8,validation=0.1,test=0.1`, exactly, in the order given.

    Raises:
      ValueError: If a name or share is wrong, or the shares do not add up to 1.
    """
    splits: dict[str, Fraction] = {}
    advice = "a split; write NAME=SHARE, with a name of letters, digits and _"
    for name, share in _values_of_splits(text, advice).items():
        if name == NO_SPLIT:
            raise ValueError(f"{name!r} stands for images without a split; choose another name")
        try:
            # Fraction computes every digit of 1e-99999999, which takes very long.
            splits[name] = Fraction(share if "/" in share or 0 < float(share) <= 1 else 0)
        except (ValueError, ZeroDivisionError):
            raise ValueError(f"{share!r} is not a share for split {name!r}; write 0.8") from None
        if not 0 < splits[name] <= 1:
            raise ValueError(f"the share of split {name!r} must be above 0 and at most 1")
    total = sum(splits.values())
    if total != 1:
        total_text = f"{float(total):g}"
        if total_text == "1":
            total_text = f"slightly {'more' if total > 1 else 'less'} than 1"
        raise ValueError(f"the shares add up to {total_text}; they must add up to 1")
    return splits


def parse_shards(text: str) -> int | dict[str, int]:
    """Parses `8` (in each split) or `train=8,test=1`.

    Raises:
      ValueError: If a count is not between 1 and 99999.
    """

    def count(value: str) -> int:
        if not re.fullmatch(r"\d{1,5}", value.strip()) or int(value) < 1:
            raise ValueError(f"{value.strip()!r} is not a number of shards from 1 to 99999")
        return int(value)

    text = str(text)
    if "=" not in text:
        return count(text)
    entries = _values_of_splits(text, "an entry; write 8 or train=8,test=1")
    return {name: count(value) for name, value in entries.items()}


def parse_color(text: str) -> tuple[int, int, int]:
    """Parses a CSS color name, `#rrggbb` or `rgb(r, g, b)` as Pillow's ImageColor does.

    Raises:
      ValueError: If it is not a color.
    """
    try:
        red, green, blue = ImageColor.getrgb(str(text))[:3]
        if not all(0 <= part <= 255 for part in (red, green, blue)):
            raise ValueError
    except ValueError:
        raise ValueError(f"{text!r} is not a color; write white or #ffffff") from None
    return red, green, blue
