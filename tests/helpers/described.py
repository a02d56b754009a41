"""Small datasets of many kinds, shared by the tests of the sidecars."""

from __future__ import annotations

import csv
import fcntl
import functools
import json
import runpy
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from PIL import Image

from helpers.light_commands import drawing
from helpers.repository import PHOTOS
from shardwright.pipelines.convert import convert
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.layouts import LAYOUTS
from shardwright.schemas.provenance import Provenance

#: A folder that all processes of a run share, which `conftest.py` chooses.
shared_folder = Path("described")
BIRDS = sorted((PHOTOS / "birds").glob("*.jpg"))
#: Names that are allowed in file systems but difficult in text formats.
HOSTILE_NAMES = ("<script>alert(1)<", 'a"b', "back\\slash'", "new\nline", "fox \N{FOX FACE} fuchs\u2028")
OWN_LAYOUT = """
extends: classification
drop: [image/key/sha256, image/class/text]
rename: {image/encoded: the picture}
features:
  price: {column: price, type: float}
  ../odd name: {column: tags, type: string, shape: [null]}
  a/./b: {column: flag, type: bool}
  kind: {column: kind, type: enum, values: [low, high]}
  count: {column: count, type: uint32}
  pair: {column: sizes, type: int64, shape: [2]}
  version: {constant: 3, type: int64}
  not text: {constant: ["caf\\u00e9", 'x"y'], type: string}
  scale: {constant: 0.5, type: float}
  label: {fill: label, tensor: true}
  sizes: {column: sizes, type: int64, shape: [2], tensor: true}
  basename: {fill: file_basename, base64: true}
  split: {fill: split}
"""
STATED = Provenance(
    license="CC-BY-4.0",
    citation="@misc{pets,\n  title = {Pets},\n}",
    creator="Ada Lovelace; org:Analytical Society",
    url="https://example.com/pets",
    description="Photos of **pets**.",
    date_published="2026-03-31",
)
_SMALL = {"input": str(PHOTOS), "resize": 24, "splits": "train=0.7,test=0.3", "limit": 12, "verify": "none"}


def read(directory: Path) -> Dataset:
    return Dataset.from_bytes((directory / "dataset.json").read_bytes(), str(directory))


def parse_module(directory: Path) -> Any:
    """Returns the `parse.py` of a dataset, with its functions as attributes."""
    return SimpleNamespace(**runpy.run_path(str(directory / "parse.py")))


def of_layout(layout: str, **settings: str) -> Dataset:
    """Returns a dataset with the description of one of photos, but with the records of a layout."""
    photos, chosen = read(described("photos")), LAYOUTS[layout]
    plan = replace(photos.plan, settings={**photos.plan.settings, "layout": layout, **settings})
    return replace(photos, layout=layout, features=chosen.features, first_label=chosen.first_label, plan=plan)


def _of_coco(root: Path) -> dict[str, Any]:
    """Writes a COCO file of the birds: two boxes in each but the last, an outline and a caption in some."""
    images = [{"id": i, "file_name": bird.name} for i, bird in enumerate(BIRDS)]
    annotations = [
        {"id": 2 * i + j, "image_id": i, "category_id": 1 + 2 * j, "bbox": [10 * j, 5, 60, 40], "area": 900,
         "iscrowd": j, "segmentation": [[10, 5, 60, 5, 60, 45]] if i % 2 else []}
        for i in range(len(BIRDS) - 1)
        for j in range(2)
    ]  # fmt: skip
    categories = [{"id": 1, "name": "wing"}, {"id": 3, "name": "<b>eak"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "coco.json").write_text(json.dumps(content))
    return {"input": str(root / "coco.json"), "image_root": str(PHOTOS / "birds")}


def _of_hostile_names(root: Path) -> dict[str, Any]:
    folder = root / "in"
    for number, name in enumerate(HOSTILE_NAMES):
        (folder / name).mkdir(parents=True)
        shutil.copy(BIRDS[number % len(BIRDS)], folder / name)
    shutil.copy(BIRDS[0], folder / "nothing is known of it.jpg")
    return {"input": str(folder), "unlabelled": "keep"}


def _of_table(root: Path) -> dict[str, Any]:
    with (root / "rows.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label", "price", "tags", "flag", "kind", "count", "sizes"])
        for number, bird in enumerate(BIRDS):
            label = ("sea|land", "sea", "air")[number % 3]
            tags = "" if number == 0 else "x|y z"
            rows.writerow([f"birds/{bird.name}", label, number / 8, tags, "true", 1, number, "7|8"])
    return {"input": str(root / "rows.csv"), "image_root": str(PHOTOS)}


def _own(root: Path) -> dict[str, Any]:
    (root / "own.yaml").write_text(OWN_LAYOUT)
    return {**_of_table(root), "layout": str(root / "own.yaml")}


def converted_once(root: Path, settings: Callable[[Path], dict[str, Any]]) -> Path:
    """Converts to `out` in a folder, unless another process of this run did so before."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "out" / "dataset.json").exists():
            convert(output=root / "out", **settings(root))
    return root / "out"


@functools.cache
def described(kind: str) -> Path:
    """Returns the directory of a dataset of one of `KINDS`, which the processes of a run convert once."""
    source, settings = KINDS[kind]
    with drawing():
        return converted_once(shared_folder / kind, lambda root: {**_SMALL, **source(root), **settings})


def _of_gray_and_colors(root: Path) -> dict[str, Any]:
    (root / "in" / "birds").mkdir(parents=True)
    with Image.open(BIRDS[0]) as picture:
        picture.convert("RGB").resize((40, 30)).save(root / "in" / "birds" / "colors.jpg")
        picture.convert("L").resize((20, 30)).save(root / "in" / "birds" / "gray.png")
    return {"input": str(root / "in")}


def _of_photos(_: Path) -> dict[str, Any]:
    return {}


#: Name -> the images of its dataset, and the settings.
KINDS: dict[str, tuple[Callable[[Path], dict[str, Any]], dict[str, Any]]] = {
    "photos": (_of_photos, {"shards": "2"}),
    "hostile": (_of_hostile_names, {"splits": "train=0.999999,never=0.000001", "image_format": "png"}),
    "gray": (_of_photos, {"layout": "imagenet", "color": "gray"}),
    "originals": (_of_photos, {"layout": "tutorial", "resize": ""}),
    "kept": (_of_gray_and_colors, {"resize": "", "color": "keep", "splits": "train=1"}),
    "webp": (_of_photos, {"layout": "tfds", "image_format": "webp", "fit": "contain"}),
    "detection": (_of_coco, {"layout": "detection"}),
    "vision": (_of_coco, {"layout": "vision"}),
    "tfrecorder": (_of_photos, {"layout": "tfrecorder"}),
    "raw": (_of_photos, {"layout": "raw", "compression": "zlib"}),
    "shapes": (_of_photos, {"layout": "raw_with_shape", "compression": "gzip", "shards": "3"}),
    "several": (_of_table, {"label_separator": "|", "extra_columns": "price:float,tags:string[],flag:bool"}),
    "own": (_own, {}),
}
