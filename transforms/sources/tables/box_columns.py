"""Finds the columns of boxes in tables, by their usual names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.transforms.sources.tables.columns import named_column, usual_names

#: Names of box columns, compared in lower case without `_`, `-`, `.` and spaces.
_CORNERS = (
    ("xmin", "x1", "left", "minx", "bboxxmin", "bboxx1", "bboxleft", "boxxmin", "xtl", "roix1", "boxx1"),
    ("ymin", "y1", "top", "miny", "bboxymin", "bboxy1", "bboxtop", "boxymin", "ytl", "roiy1", "boxy1"),
    ("xmax", "x2", "right", "maxx", "bboxxmax", "bboxx2", "bboxright", "boxxmax", "xbr", "roix2", "boxx2"),
    ("ymax", "y2", "bottom", "maxy", "bboxymax", "bboxy2", "bboxbottom", "boxymax", "ybr", "roiy2", "boxy2"),
)
#: The same for a box that is given as its upper left corner, width and height.
_EXTENTS = (
    ("bboxx", "boxx", "x", "xmin", "left", "bboxleft"),
    ("bboxy", "boxy", "y", "ymin", "top", "bboxtop"),
    ("bboxwidth", "boxwidth", "bboxw", "boxw", "w"),
    ("bboxheight", "boxheight", "bboxh", "boxh", "h"),
)
_SIZE = (("width", "imagewidth", "imgwidth"), ("height", "imageheight", "imgheight"))
#: Position of a column that does not exist.
MISSING = -1


class BoxColumns(NamedTuple):
    """Positions of columns in a row; -1 for a missing one.

    Attributes:
      image: Path of the image.
      label: Class.
      split: Split.
      sides: Four numbers of the box.
      size: Width and height of the picture; empty if either is missing.
      has_extents: Whether the last two numbers of the box are its width and height.
    """

    image: int = 0
    label: int = 5
    split: int = MISSING
    sides: tuple[int, ...] = (1, 2, 3, 4)
    size: tuple[int, ...] = ()
    has_extents: bool = False


def _plain(name: str) -> str:
    return re.sub(r"[\s_.-]+", "", name.strip().lower())


def box_columns(header: Sequence[str], settings: ConvertSettings) -> BoxColumns | None:
    """Returns the positions of the columns in a header; None if it has no columns of boxes."""
    plain = [_plain(name) for name in header]

    def find(names: Sequence[str]) -> int:
        return next((plain.index(name) for name in names if name in plain), MISSING)

    def role(name: str) -> int:
        named = named_column(name, settings)
        if named:
            return header.index(named) if named in header else MISSING
        return find([*map(_plain, usual_names(name)), *(["imageid"] if name == "image" else [])])

    image, label, split = map(role, ("image", "label", "split"))
    corners, extents, size = (tuple(map(find, names)) for names in (_CORNERS, _EXTENTS, _SIZE))
    has_extents = MISSING in corners
    sides = extents if has_extents else corners
    if MISSING in (image, label, *sides):
        return None
    return BoxColumns(image, label, split, sides, size if MISSING not in size else (), has_extents)
