"""COCO's JSON documents, and the masks of panoptic segments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
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


def put_coco(
    path: Path,
    boxes: Mapping[str, Iterable[Sequence[float]]],
    classes: Sequence[str],
    sizes: Mapping[str, tuple[int, int]] | None = None,
) -> Path:
    """Writes a document with ids of images from 0 and of categories from 1.

    Args:
      path: The file.
      boxes: Name of an image -> category, left, top, width and height of each of its boxes.
      classes: Names of the categories.
      sizes: Name of an image -> its width and height, which the document may leave out.
    """
    images = [{"id": i, "file_name": name} for i, name in enumerate(boxes)]
    for image in images:
        image |= dict(zip(("width", "height"), (sizes or {}).get(image["file_name"], ())))
    found = [(i, *box) for i, of_image in enumerate(boxes.values()) for box in of_image]
    annotations = [
        {"id": number, "image_id": i, "category_id": category, "bbox": box, "area": box[2] * box[3],
         "iscrowd": 0}
        for number, (i, category, *box) in enumerate(found)
    ]  # fmt: skip
    categories = [{"id": number, "name": name} for number, name in enumerate(classes, 1)]
    return save(path, {"images": images, "annotations": annotations, "categories": categories})


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
