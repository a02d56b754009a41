"""Bounds on the parts of an image file, each with the quarantine code and the setting that carry its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import ImageFault

_PREFIX = "TOO_MANY_"
_HIGHEST = 2**63 - 1


class Bounds(NamedTuple):
    """The most parts that an image file may have. The bound `scans` has the code `TOO_MANY_SCANS`.

    The defaults are far above what programs write.

    Attributes:
      scans: Scans of a JPEG of 43 megapixels; a smaller picture may have more, in proportion.
      segments: Segments of a JPEG, or of a header in a JPEG 2000. A color profile takes up to 255.
      exif_segments: Segments of a JPEG with Exif data. Most files have one; Pillow joins them.
      stray_bytes: Bytes between the segments of a JPEG, the blocks of a GIF or the runs of a BMP.
      chunks: Chunks of a PNG or a WebP.
      blocks: Blocks of a GIF's pixels, up to the second frame.
      comment_blocks: Blocks of a GIF's comments, which Pillow joins one by one.
      extension_blocks: Blocks of a GIF's other extensions.
      tags: Tags of a TIFF or of Exif data.
      tag_values: Values of all these tags. A fraction counts as eight.
      strips: Strips or tiles of a TIFF. The tallest scans have one for each row.
      shared_bytes: Bytes by which all tags, or all strips, of a TIFF may exceed the file. Some files share
        them.
      runs: Pixels, and bytes, of a run-length encoded BMP, which Pillow decodes in Python.
      columns: Columns of a run-length encoded BMP. One command may skip 255 rows.
      comments: Bytes of a PNM's header, with its comments.
      boxes: Boxes of a HEIF, JPEG 2000 or JPEG XL, and parts and properties of a HEIF's images.
      tiles: Tiles of a HEIF or JPEG 2000. The tiles of a HEIF may share their bytes.
      code_blocks: Code blocks of a JPEG 2000, for which OpenJPEG keeps a kilobyte each.
      packets: Packets of a JPEG 2000.
    """

    scans: int = 100
    segments: int = 1 << 16
    exif_segments: int = 64
    stray_bytes: int = 1 << 20
    chunks: int = 1 << 17
    blocks: int = 1 << 20
    comment_blocks: int = 1 << 12
    extension_blocks: int = 1 << 16
    tags: int = 1 << 16
    tag_values: int = 1 << 20
    strips: int = 1 << 17
    shared_bytes: int = 1 << 26
    runs: int = 1 << 25
    columns: int = 1 << 17
    comments: int = 1 << 16
    boxes: int = 1 << 14
    tiles: int = 1 << 14
    code_blocks: int = 1 << 22
    packets: int = 1 << 22

    def check(self, name: str, count: int, text: str) -> None:
        """Checks that a file does not have more parts of a kind than it may have.

        Args:
          name: Name of the bound.
          count: The number of parts, or as many as were counted.
          text: The format and what was found, such as "jpeg: it has 101 scans", for the message.

        Raises:
          ImageFault: If it has more. The message names the setting to raise.
        """
        if count > getattr(self, name):
            raise self.fault(name, text)

    def fault(self, name: str, text: str) -> ImageFault:
        """Returns the fault of a file that exceeds a bound.

        Args:
          name: Name of the bound.
          text: The format and what was found.
        """
        code = QuarantineReason(_PREFIX + name.upper())
        limit = getattr(self, name)
        message = f"{text}, more than {limit}; to accept it, raise --bounds {code}={limit}"
        return ImageFault(code, Stage.DECODE, message)


DEFAULT_BOUNDS = Bounds()
#: For images that were accepted before, such as those in the records of a dataset.
NO_BOUNDS = Bounds(*[_HIGHEST] * len(DEFAULT_BOUNDS))
#: Code -> the bound.
_NAMES: Mapping[str, str] = {_PREFIX + name.upper(): name for name in Bounds._fields}


def parse_bounds(text: str) -> Bounds:
    """Parses bounds that differ from the defaults: `TOO_MANY_SCANS=500,TOO_MANY_STRIPS=200000`.

    Raises:
      ValueError: If a code is unknown or occurs twice, or a number is not a positive whole number.
    """
    bounds: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        code, equals, number = (part.strip() for part in item.partition("="))
        if code not in _NAMES:
            raise ValueError(f"there is no bound {code!r}; choose from {', '.join(_NAMES)}")
        if not equals:
            raise ValueError(
                f"{code!r} needs a number, such as {code}={getattr(DEFAULT_BOUNDS, _NAMES[code])}"
            )
        if _NAMES[code] in bounds:
            raise ValueError(f"{code} occurs twice")
        if not re.fullmatch(r"\+?\d{1,20}", number) or not 1 <= int(number) <= _HIGHEST:
            raise ValueError(f"{code}: {number!r} is not a whole number from 1 to {_HIGHEST}")
        bounds[_NAMES[code]] = int(number)
    return Bounds(**bounds)


def format_bounds(bounds: Bounds) -> str:
    """Returns the bounds that differ from the defaults, in a fixed order; empty if none does."""
    return ",".join(
        f"{code}={getattr(bounds, name)}"
        for code, name in _NAMES.items()
        if getattr(bounds, name) != getattr(DEFAULT_BOUNDS, name)
    )
