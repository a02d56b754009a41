"""What every annotation source does: boxes reach the records, folders are splits, missing parts are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from helpers.annotation_sets import (
    box_table,
    coco,
    cvat,
    json_exports,
    kitti,
    labelme,
    open_images,
    voc,
    yolo,
)
from helpers.listing import Photo, listed, put_photos
from helpers.records import balanced, examples, quarantine, value, values

from shardwright.pipelines.convert import convert

SIDES = ("xmin", "ymin", "xmax", "ymax")


def _box_table(root: Path) -> list[Photo]:
    photos = put_photos(root)
    box_table.put(root / "_annotations.csv", box_table.HEADER, box_table.rows_of(photos))
    return photos


def _coco(root: Path) -> list[Photo]:
    photos = put_photos(root)
    coco.save(root / "_annotations.coco.json", coco.coco_of(photos))
    return photos


def _create_ml(root: Path) -> list[Photo]:
    photos = put_photos(root)
    coco.save(root / "_annotations.createml.json", json_exports.create_ml_of(photos))
    return photos


def _label_studio(root: Path) -> list[Photo]:
    photos = put_photos(root / "images")
    json_exports.put_label_studio(root, photos)
    return photos


def _open_images(root: Path) -> list[Photo]:
    photos = put_photos(root / "images")
    open_images.put_csv(root / "boxes.csv", open_images.rows_of(photos))
    return photos


def _voc_beside(root: Path) -> list[Photo]:
    photos = put_photos(root)
    voc.put_xml(root, photos)
    return photos


def _yolo(root: Path) -> list[Photo]:
    photos = put_photos(root / "images")
    yolo.put_labels(root / "labels", photos)
    (root / "classes.txt").write_text("thing\nno\nbird\n")
    return photos


class Format(NamedTuple):
    """How a format is written, and what it can do.

    Attributes:
      put: writes photos and their annotations into a folder.
      source: name of its source.
      splits: whether folders of it, each with images and annotations, are splits.
      alone: pattern of the file with the annotations of one image, if there is one for each.
    """

    put: Callable[[Path], list[Photo]]
    source: str
    splits: bool = False
    alone: str = ""


FORMATS = {
    "box_table": Format(_box_table, "box_table", splits=True),
    "coco": Format(_coco, "coco", splits=True),
    "create_ml": Format(_create_ml, "create_ml", splits=True),
    "cvat": Format(cvat.put_set, "cvat", splits=True),
    "kitti": Format(kitti.put_kitti, "kitti", splits=True, alone="label_2/{}.txt"),
    "label_studio": Format(_label_studio, "label_studio"),
    "labelme": Format(labelme.put_labelme, "labelme", splits=True, alone="{}.json"),
    "open_images": Format(_open_images, "open_images"),
    "voc": Format(voc.put_voc, "voc", alone="Annotations/{}.xml"),
    "voc beside": Format(_voc_beside, "voc", splits=True, alone="{}.xml"),
    "yolo": Format(_yolo, "yolo"),
}
#: A box is stored as float32 shares of the picture; formats write shares with six digits.
_PIXELS = 0.01


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", FORMATS)
def test_records_contain_the_boxes(tmp_path: Path, name: str) -> None:
    photos = {photo.name: photo for photo in FORMATS[name].put(tmp_path / "in")}
    found = listed(tmp_path / "in")
    assert found.input.source == FORMATS[name].source and set(found.reasons().values()) <= {"not_an_image"}
    made = convert(input=tmp_path / "in", output=tmp_path / "out", layout="detection", verify="full")
    assert balanced(made.dataset.ledger) and {"bird", "thing"} <= {*made.dataset.labels}
    (records,) = examples(tmp_path / "out").values()
    seen = set()
    for record in records:
        photo = photos[Path(value(record, "image/filename")).name]
        seen.add(photo.name)
        sides = np.array([values(record, f"image/object/bbox/{side}") for side in SIDES]).T * (photo.size * 2)
        texts = values(record, "image/object/class/text")
        boxes = sorted(zip(texts, sides.tolist(), strict=True))
        assert [label for label, _ in boxes] == [box[0] for box in sorted(photo.boxes)]
        for (_, stored), (_, *expected) in zip(boxes, sorted(photo.boxes), strict=True):
            np.testing.assert_allclose(stored, expected, atol=_PIXELS)
    without = {"eagle.jpg"} if name in ("box_table", "open_images") else set()
    assert seen == photos.keys() - without, "an image without boxes has no row in a table"


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.splits])
def test_folders_are_splits(tmp_path: Path, name: str) -> None:
    for split in ("train", "val"):
        FORMATS[name].put(tmp_path / split)
    found = listed(tmp_path)
    assert {key.partition("/")[0]: ref.split for key, ref in found.refs.items()} == {
        "train": "train",
        "val": "val",
    }
    assert not found.reasons()


@pytest.mark.parametrize("name", FORMATS)
def test_a_missing_image_is_a_fault(tmp_path: Path, name: str) -> None:
    FORMATS[name].put(tmp_path)
    (image,) = tmp_path.rglob("house.jpg")
    image.unlink()
    found = listed(tmp_path)
    ((key, reason),) = [item for item in found.reasons().items() if item[1] != "not_an_image"]
    message = found.refs[key].message
    assert reason == "BAD_ANNOTATION" and ("missing" in message or "no image for this" in message)


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.alone])
def test_images_without_a_file_of_annotations_may_have_no_objects(tmp_path: Path, name: str) -> None:
    FORMATS[name].put(tmp_path / "in")
    (tmp_path / "in" / FORMATS[name].alone.format("house")).unlink()
    failing = listed(tmp_path / "in")
    ((key, reason),) = failing.reasons().items()
    assert key.endswith("house.jpg") and reason == "BAD_ANNOTATION"
    assert "--missing_annotations empty" in failing.refs[key].message
    found = listed(tmp_path / "in", missing_annotations="empty")
    assert not found.reasons() and found.annotations_of(key).objects == ()
    convert(input=tmp_path / "in", output=tmp_path / "out", layout="detection", max_bad_fraction=1)
    assert [*quarantine(tmp_path / "out")] == [key]
