"""Rows of manifests with an `objects` column."""

from __future__ import annotations

from typing import Any

from helpers.listing import Photo


def row_of(photo: Photo, numbers: bool = False) -> dict[str, Any]:
    """Returns a row as in the documentation of the format."""
    boxes = [
        [float(left), float(top), float(right - left), float(bottom - top)]
        for _, left, top, right, bottom in photo.boxes
    ]
    classes: list[Any] = [int(name == "bird") if numbers else name for name, *_ in photo.boxes]
    return {"file_name": photo.name, "objects": {"bbox": boxes, "categories": classes}}
