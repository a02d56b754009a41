"""COCO's JSON documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.listing import Photo

IDS = {"thing": 3, "bird": 16}


def coco_of(photos: list[Photo], first_id: int = 100) -> dict[str, Any]:
    """Returns COCO's document for some photos; their objects have outlines."""
    images = [
        {"id": first_id + 7 * i, "file_name": photo.name, "width": photo.size[0], "height": photo.size[1]}
        for i, photo in enumerate(photos)
    ]
    annotations = [
        {
            "id": 1000 * i + j,
            "image_id": first_id + 7 * i,
            "category_id": IDS[name],
            "bbox": [left, upper, right - left, lower - upper],
            "area": (right - left) * (lower - upper) / 2,
            "iscrowd": 0,
            "segmentation": [[left, upper, right, upper, left, lower]],
        }
        for i, photo in enumerate(photos)
        for j, (name, left, upper, right, lower) in enumerate(photo.boxes)
    ]
    categories = [{"id": number, "name": name, "supercategory": "x"} for name, number in IDS.items()]
    # As in COCO's own files, the annotations of an image are not adjacent.
    return {"info": {}, "images": images, "annotations": annotations[::-1], "categories": categories}


def save(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path
