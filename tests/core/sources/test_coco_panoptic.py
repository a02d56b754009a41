"""COCO's panoptic segments: masks beside the JSON, and faults in them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.annotation_sets.coco import coco_of, save
from helpers.annotation_sets.coco_panoptic import panoptic_of
from helpers.listing import Photo, listed, put_photos
from helpers.records import examples, picture, value, values

from shardwright.pipelines.convert import convert
from shardwright.schemas.errors import UsageError


@pytest.fixture
def photos(tmp_path: Path) -> list[Photo]:
    return put_photos(tmp_path / "val2017")


def test_panoptic_masks_are_listed(tmp_path: Path, photos: list[Photo]) -> None:
    folder = tmp_path / "annotations"
    document = panoptic_of(photos, folder / "panoptic_val2017")
    path = save(folder / "panoptic_val2017.json", document)
    save(folder / "instances_val2017.json", coco_of(photos))
    made = convert(
        input=tmp_path, output=tmp_path.parent / f"{tmp_path.name}-out", layout="panoptic", verify="full"
    )
    assert made.dataset.ledger["written"] == len(photos)
    (records,) = examples(tmp_path.parent / f"{tmp_path.name}-out").values()
    for record in records:
        category = picture(record, "image/panoptic/category_mask")
        assert (category[:, 0] == 3).all() and category[0, -1] == 16 and category[-1, -1] == 0
        instance = picture(record, "image/panoptic/instance_mask")
        assert (instance[0, 0], instance[0, -1], instance[-1, -1]) == (1, 2, 0)
    with pytest.raises(UsageError, match="only panoptic segments"):
        listed(path)
    shutil.move(folder / "panoptic_val2017", tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="--mask_dir"):
        listed(path, layout="panoptic")
    assert not listed(path, layout="panoptic", mask_dir=tmp_path / "elsewhere").reasons()


def test_stuff_has_no_instances(tmp_path: Path, photos: list[Photo]) -> None:
    document = panoptic_of(photos, tmp_path / "panoptic_val2017")
    for category in document["categories"]:
        category["isthing"] = int(category["id"] == 3)
    path = save(tmp_path / "panoptic_val2017.json", document)
    convert(input=path, output=tmp_path / "out", layout="panoptic")
    (records,) = examples(tmp_path / "out").values()
    assert len(records) == len(photos)
    for record in records:
        category = picture(record, "image/panoptic/category_mask")
        instance = picture(record, "image/panoptic/instance_mask")
        assert (category[0, 0], category[0, -1]) == (3, 16)
        assert (instance[0, 0], instance[0, -1]) == (1, 0)


def test_bad_panoptic_annotations_are_faults(tmp_path: Path) -> None:
    photos = put_photos(tmp_path / "val2017", ("eagle", "apple", "house", "seagull", "rose"))
    document = panoptic_of(photos, tmp_path / "panoptic_val2017")
    first, second, third, fourth, _ = document["annotations"]
    first["file_name"] = "../../x.png"
    second["segments_info"][0]["id"] = "x"
    third["segments_info"] = None
    fourth["file_name"] = "gone.png"
    path = save(tmp_path / "panoptic_val2017.json", document)
    found = listed(path, layout="panoptic")
    assert set(found.reasons()) == {photo.name for photo in photos[:3]}
    made = convert(input=path, output=tmp_path / "out", layout="panoptic", max_bad_fraction=1, source="coco")
    assert made.dataset.ledger["reasons"]["quarantined"] == {"BAD_ANNOTATION": 4}


def test_vision_stores_objects_and_panoptic_masks(tmp_path: Path, photos: list[Photo]) -> None:
    folder = tmp_path / "annotations"
    document = panoptic_of(photos, folder / "panoptic_val2017")
    document["categories"].append({"id": 40, "name": "sky", "isthing": 0})
    for annotation in document["annotations"]:
        annotation["segments_info"][1]["category_id"] = 40
    save(folder / "panoptic_val2017.json", document)
    save(folder / "instances_val2017.json", coco_of(photos))
    out = tmp_path.parent / "vision"
    made = convert(input=tmp_path, output=out, layout="vision", verify="full", resize=64)
    assert made.dataset.ledger["written"] == len(photos)
    assert made.dataset.classes == {3: "thing", 16: "bird", 40: "sky"}
    boxes = {photo.name: len(photo.boxes) for photo in photos}
    (records,) = examples(out).values()
    for record in records:
        category = picture(record, "image/panoptic/category_mask")
        instance = picture(record, "image/panoptic/instance_mask")
        assert (category[0, 0], category[0, -1], category[-1, -1]) == (3, 40, 0)
        assert (instance[0, 0], instance[0, -1], instance[-1, -1]) == (1, 0, 0)
        name = value(record, "image/filename").rpartition("/")[2]
        assert len(values(record, "image/object/bbox/xmin")) == boxes[name]
    assert made.outcome["boxes"]["written"] == sum(boxes.values())
    assert made.outcome["boxes"]["segments_written"] == 2 * len(photos)
    for record in examples_of(tmp_path, "detection"):
        assert not [name for name in record.features.feature if "panoptic" in name]


def examples_of(folder: Path, layout: str) -> list[Any]:
    convert(input=folder, output=folder.parent / layout, layout=layout)
    (records,) = examples(folder.parent / layout).values()
    return records


def test_panoptic_files_that_are_not_used_are_named(tmp_path: Path, photos: list[Photo]) -> None:
    folder = tmp_path / "annotations"
    save(folder / "panoptic_val2017.json", panoptic_of(photos, folder / "panoptic_val2017"))
    save(folder / "instances_val2017.json", coco_of(photos))

    def left_out(where: Path, layout: str) -> str:
        return listed(where, layout=layout).input.detected_as.partition("; left out: ")[2]

    assert left_out(tmp_path, "vision") == ""
    assert "panoptic_val2017.json (--layout detection stores no" in left_out(tmp_path, "detection")
    assert "instances_val2017.json (--layout panoptic stores" in left_out(tmp_path, "panoptic")
    shutil.rmtree(folder / "panoptic_val2017")
    assert "name it with --mask_dir" in left_out(tmp_path, "vision")
