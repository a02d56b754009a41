"""Rows of manifests with an `objects` column, and lists of paths and classes in ImageNet's form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.listing import Photo, put_photos


def row_of(photo: Photo, numbers: bool = False) -> dict[str, Any]:
    """Returns a row as in the documentation of the format."""
    boxes = [
        [float(left), float(top), float(right - left), float(bottom - top)]
        for _, left, top, right, bottom in photo.boxes
    ]
    classes: list[Any] = [int(name == "bird") if numbers else name for name, *_ in photo.boxes]
    return {"file_name": photo.name, "objects": {"bbox": boxes, "categories": classes}}


def put_imagenet(root: Path) -> dict[str, dict[str, str]]:
    """Writes images in folders of splits, and lists beside the folders; returns split -> key -> class."""
    labels: dict[str, dict[str, str]] = {}
    for split, names in (("train", ("eagle", "apple", "house")), ("val", ("rose", "eagle"))):
        photos = put_photos(root / split / "n01", names)
        lines = [f"n01/{photo.name} {number % 2}" for number, photo in enumerate(photos)]
        (root / f"{split}.txt").write_text("\n".join(lines))
        labels[split] = {f"{split}/n01/{photo.name}": str(number % 2) for number, photo in enumerate(photos)}
    return labels
