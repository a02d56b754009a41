"""A small dataset in the format of LabelMe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.annotation_sets.coco import save
from helpers.listing import Photo, put_photos


def shape(label: str, kind: str, *points: tuple[float, float], **more: Any) -> dict[str, Any]:
    content = {
        "label": label,
        "points": [[*point] for point in points],
        "group_id": None,
        "description": "",
        "shape_type": kind,
    }
    return content | {"flags": {}, "mask": None} | more


def document(photo: Photo, folder: str = "", data: str | None = None, **more: Any) -> dict[str, Any]:
    """Returns a file of LabelMe; the corners of a rectangle are in the order in which they were drawn."""
    shapes = [
        shape(name, "rectangle", (right, lower), (left, upper))
        for name, left, upper, right, lower in photo.boxes
    ]
    content = {"version": "5.5.0", "flags": {}, "shapes": shapes, "imagePath": folder + photo.name}
    return content | {"imageData": data, "imageHeight": photo.size[1], "imageWidth": photo.size[0]} | more


def put_labelme(root: Path, names: tuple[str, ...] = ("eagle", "apple", "house", "seagull")) -> list[Photo]:
    photos = put_photos(root, names)
    for photo in photos:
        save(root / f"{Path(photo.name).stem}.json", document(photo))
    return photos
