"""COCO's JSON documents, and the masks of panoptic segments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

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


def panoptic_of(photos: list[Photo], masks: Path) -> dict[str, Any]:
    masks.mkdir(parents=True)
    annotations = []
    for number, photo in enumerate(photos):
        ids = np.zeros(photo.size[::-1], np.uint32)
        ids[:, : photo.size[0] // 2] = 300 + number
        ids[: photo.size[1] // 2, photo.size[0] // 2 :] = 70_000
        pixels = np.stack([ids % 256, ids // 256 % 256, ids // 65536], -1).astype(np.uint8)
        name = photo.name.rpartition(".")[0] + ".png"
        Image.fromarray(pixels).save(masks / name)
        segments = [{"id": 300 + number, "category_id": 3, "iscrowd": 0}, {"id": 70_000, "category_id": 16}]
        annotations.append({"image_id": 100 + 7 * number, "file_name": name, "segments_info": segments})
    return {**coco_of(photos), "annotations": annotations}
