"""CSV files with a row for each box."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from helpers.listing import Photo
from shardwright.schemas.annotations import Annotations

HEADER = "filename,width,height,class,xmin,ymin,xmax,ymax"

NAMES = ("apple", "house", "seagull", "rose")


def rows_of(photos: list[Photo], form: str = HEADER, folder: str = "", share: bool = False) -> list[str]:
    """Returns a row for each box, with the columns of the form."""
    rows = []
    for photo in photos:
        for name, left, upper, right, lower in photo.boxes:
            sides = dict(zip(("xmin", "ymin", "xmax", "ymax"), (left, upper, right, lower), strict=True))
            if share:
                scale = {"x": photo.size[0], "y": photo.size[1]}
                sides = {side: f"{number / scale[side[0]]:.7f}" for side, number in sides.items()}
            else:
                sides |= {"w": right - left, "h": lower - upper}
            cells = {"width": photo.size[0], "height": photo.size[1], "class": name, **sides}
            cells["filename"] = folder + photo.name
            rows.append(",".join(str(cells[column]) for column in form.split(",")))
    return rows


def in_any_order(rows: list[str]) -> dict[str, list[str]]:
    """Returns the rows as they are, reversed, and in turn, so that those of an image are apart."""
    return {"as they are": rows, "reversed": rows[::-1], "in turn": rows[::2] + rows[1::2]}


def boxes_of(annotations: Annotations, photo: Photo) -> list[tuple[object, ...]]:
    """Returns the class and the box in whole pixels of each object, sorted."""
    scale = np.array(photo.size * 2) if annotations.relative else 1
    return sorted((item.label, *np.round(np.array(item.box) * scale)) for item in annotations.objects or ())


def put(path: Path, header: str, rows: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*filter(None, [header]), *rows, ""]))
    return path
