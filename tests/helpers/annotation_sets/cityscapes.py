"""A small dataset in the format of Cityscapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from helpers.listing import Photo, put_photos
from shardwright.core.sources.cityscapes import CLASSES


def rectangle(label: str, left: int, top: int, right: int, bottom: int) -> dict[str, Any]:
    return {"label": label, "polygon": [[left, top], [right, top], [right, bottom], [left, bottom]]}


def put_city(
    root: Path, split: str, names: tuple[str, ...], kind: str = "gtFine", only_boxes: bool = False
) -> list[Photo]:
    """Writes images and annotations of a split, with the names that Cityscapes uses.

    Args:
      root: Folder of the dataset.
      split: Name of the split.
      names: Names of the photos.
      kind: Folder of the annotations.
      only_boxes: Whether the boxes of the photos are the only objects.
    """
    folder = root / "leftImg8bit" / split / "aachen"
    gt = root / kind / split / "aachen"
    gt.mkdir(parents=True)
    found = []
    for photo in put_photos(folder, names):
        stem = f"aachen_{Path(photo.name).stem}_000019"
        (folder / photo.name).rename(folder / f"{stem}_leftImg8bit.png")
        width, height = photo.size
        objects = [
            rectangle("sky", 0, 0, width, 50),
            rectangle("car", 10, 20, 110, 70),
            rectangle("persongroup", -4, 5, 40, 60),
            rectangle("license plate", 20, 20, 30, 30),
            rectangle("bus", 1, 2, 30, 40) | {"deleted": 1},
        ]
        boxes = tuple(("person" if box[0] == "bird" else "car", *box[1:]) for box in photo.boxes)
        found.append(Photo(f"{stem}_leftImg8bit.png", photo.size, boxes))
        objects = [rectangle(*box) for box in boxes] if only_boxes else objects
        document = {"imgHeight": height, "imgWidth": width, "objects": objects}
        (gt / f"{stem}_{kind}_polygons.json").write_text(json.dumps(document))
        ids = np.zeros((height, width), np.uint8)
        ids[:50], ids[50:100] = CLASSES.index("sky"), CLASSES.index("car")
        Image.fromarray(ids).save(gt / f"{stem}_{kind}_labelIds.png")
        Image.fromarray(ids).save(gt / f"{stem}_{kind}_instanceIds.png")
    return found
