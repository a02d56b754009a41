"""COCO's panoptic segments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from helpers.annotation_sets.coco import coco_of
from helpers.listing import Photo


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
