"""COCO's key points and panoptic segments: files alone and beside instances, and faults in them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.annotation_sets.coco import coco_of, panoptic_of, save
from helpers.depths import findings_of
from helpers.fewer_imports import late
from helpers.listing import Photo, listed, put_photos
from helpers.records import examples, picture, value, values
from pycocotools.coco import COCO

from shardwright import loader
from shardwright.pipelines.convert import convert
from shardwright.schemas.errors import UsageError

tf = late("tensorflow")

BIRD, THING = ["beak", "tail"], ["corner", "beak", "edge"]
KEYPOINT = "image/object/keypoint/"


@pytest.fixture
def photos(tmp_path: Path) -> list[Photo]:
    return put_photos(tmp_path / "val2017")


def with_points(document: dict[str, Any]) -> dict[str, Any]:
    """Adds key points to the birds of a document, and names to its categories."""
    for category in document["categories"]:
        category["keypoints"] = BIRD if category["name"] == "bird" else THING
    for item in document["annotations"]:
        if item["category_id"] == 16:
            x, y, width, height = item["bbox"]
            item["keypoints"] = [x, y, 2, x + width / 2, y + height / 2, item["id"] % 3]
            item["num_keypoints"] = 1 + (item["id"] % 3 > 0)
    return document


def birds_only(document: dict[str, Any]) -> dict[str, Any]:
    return {
        **document,
        "annotations": [item for item in document["annotations"] if item["category_id"] == 16],
        "categories": [item for item in document["categories"] if item["name"] == "bird"],
    }


def test_key_points_beside_instances_are_joined_by_id(tmp_path: Path, photos: list[Photo]) -> None:
    folder = tmp_path / "annotations"
    save(folder / "instances_val2017.json", coco_of(photos))
    document = birds_only(with_points(coco_of(photos)))
    path = save(folder / "person_keypoints_val2017.json", document)
    made = convert(input=tmp_path, output=tmp_path / "../out", layout="keypoints", verify="none")
    assert made.dataset.ledger["written"] == len(photos)
    out = Path(made.path)
    known = COCO(str(path))
    both = COCO(str(folder / "instances_val2017.json"))
    ids = {image["file_name"]: image["id"] for image in known.imgs.values()}
    (records,) = examples(out).values()
    labelled = 0
    for record in records:
        image = known.imgs[ids[value(record, "image/filename").rpartition("/")[2]]]
        size = np.array([image["width"], image["height"]])
        objects = both.imgToAnns[image["id"]]
        count = len(objects)
        assert values(record, KEYPOINT + "text") == BIRD * count
        x, y, seen = (
            np.reshape(values(record, KEYPOINT + name), (count, 2)) for name in ("x", "y", "visibility")
        )
        for place, item in enumerate(objects):
            stated = known.anns.get(item["id"], {}).get("keypoints", [0] * 6)
            for i in range(2):
                point = np.array(stated[3 * i : 3 * i + 2]) * (stated[3 * i + 2] > 0)
                np.testing.assert_allclose([x[place, i], y[place, i]], point / size, rtol=1e-6)
                assert seen[place, i] == stated[3 * i + 2]
        assert values(record, KEYPOINT + "num") == (seen > 0).sum(1).tolist()
        labelled += int((seen > 0).sum())
    assert labelled == 3
    assert not findings_of(out)
    copies = listed(out, "keypoints", source="tfrecord").records().values()
    assert sorted(map(str, copies)) == sorted(map(str, records))
    for batch in loader.load(
        str(out), split="val" if "val" in made.dataset.splits else "train", batch_size=None
    ):
        points = batch[KEYPOINT + "x"]
        assert points.shape == batch[KEYPOINT + "visibility"].shape and points.dtype == tf.float32


def test_points_of_all_categories_are_stored_for_every_object(tmp_path: Path, photos: list[Photo]) -> None:
    path = save(tmp_path / "instances_val2017.json", with_points(coco_of(photos)))
    found = listed(path, layout="keypoints")
    for photo in photos:
        annotations = found.annotations_of(photo.name)
        assert sorted(annotations.keypoint_names) == sorted({*BIRD, *THING})
        for item in annotations.objects or ():
            if item.label == "thing":
                assert item.keypoints is None
            else:
                points = dict(
                    zip(annotations.keypoint_names, np.reshape(item.keypoints or (), (-1, 3)).tolist())
                )
                assert points["corner"] == points["edge"] == [0, 0, 0] != points["beak"]
    assert not any(item.keypoints for item in listed(path).annotations_of(photos[0].name).objects or ())


@pytest.mark.parametrize(
    ("without", "message"), [("annotations", "has no key points"), ("categories", "does not name its key")]
)
def test_files_without_key_points_are_refused(
    tmp_path: Path, photos: list[Photo], without: str, message: str
) -> None:
    document = with_points(coco_of(photos))
    document["categories"][0].pop("keypoints")
    path = save(tmp_path / "instances_val2017.json", document)
    assert listed(path, layout="keypoints").annotations_of(photos[0].name).keypoint_names
    for item in document[without]:
        item.pop("keypoints", None)
    save(path, document)
    with pytest.raises(UsageError, match=message):
        listed(path, layout="keypoints")


def test_key_points_of_an_unknown_object_fail_their_image(tmp_path: Path, photos: list[Photo]) -> None:
    folder = tmp_path / "annotations"
    save(folder / "instances_val2017.json", coco_of(photos))
    document = birds_only(with_points(coco_of(photos)))
    document["annotations"][0]["id"] = 987_654
    save(folder / "person_keypoints_val2017.json", document)
    bad = [ref for ref in listed(tmp_path, layout="keypoints").refs.values() if not ref.is_candidate]
    assert [ref.message for ref in bad if "key points" in ref.message] == [
        "image 4 of annotations/instances_val2017.json: no object has the id 987654 of its key points"
    ]


def test_a_wrong_number_of_values_is_a_bad_object(tmp_path: Path, photos: list[Photo]) -> None:
    document = with_points(coco_of(photos))
    birds = [item for item in document["annotations"] if "keypoints" in item]
    birds[0]["keypoints"] = [1, 2]
    found = listed(save(tmp_path / "instances_val2017.json", document), layout="keypoints")
    assert sum((entry.boxes or {}).get("dropped", 0) for entry in found.entries().values()) == 1


def test_sources_without_key_points_say_so(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<annotation><filename>a.jpg</filename></annotation>")
    with pytest.raises(UsageError, match="does not provide key points; choose --layout detection"):
        listed(tmp_path, layout="keypoints")


def test_panoptic_masks_are_listed(tmp_path: Path, photos: list[Photo]) -> None:
    folder = tmp_path / "annotations"
    document = panoptic_of(photos, folder / "panoptic_val2017")
    path = save(folder / "panoptic_val2017.json", document)
    save(folder / "instances_val2017.json", coco_of(photos))
    records = listed(tmp_path, layout="panoptic").records()
    assert len(records) == len(photos)
    for record in records.values():
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
    assert [entry.reason for entry in found.entries().values()].count("BAD_ANNOTATION") == 4


def test_vision_stores_objects_and_panoptic_masks(tmp_path: Path, photos: list[Photo]) -> None:
    folder = tmp_path / "annotations"
    document = panoptic_of(photos, folder / "panoptic_val2017")
    document["categories"].append({"id": 40, "name": "sky", "isthing": 0})
    for annotation in document["annotations"]:
        annotation["segments_info"][1]["category_id"] = 40
    save(folder / "panoptic_val2017.json", document)
    save(folder / "instances_val2017.json", coco_of(photos))
    found = listed(tmp_path, layout="vision")
    assert found.ids == {"thing": 3, "bird": 16, "sky": 40}
    boxes = {f"val2017/{photo.name}": len(photo.boxes) for photo in photos}
    records = found.records(resize="64")
    for record in records.values():
        category = picture(record, "image/panoptic/category_mask")
        instance = picture(record, "image/panoptic/instance_mask")
        assert (category[0, 0], category[0, -1], category[-1, -1]) == (3, 40, 0)
        assert (instance[0, 0], instance[0, -1], instance[-1, -1]) == (1, 0, 0)
    assert boxes == {key: len(values(item, "image/object/bbox/xmin")) for key, item in records.items()}
    assert {(entry.boxes or {})["segments_written"] for entry in found.entries().values()} == {2}
    for record in listed(tmp_path).records().values():
        assert not [name for name in record.features.feature if "panoptic" in name]


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


def test_the_images_of_a_split_without_a_file_are_named(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        save(tmp_path / split / "_annotations.coco.json", coco_of(put_photos(tmp_path / split)))
    (tmp_path / "train" / "_annotations.coco.json").unlink()
    assert listed(tmp_path).input.detected_as.endswith("; left out: train (it holds no COCO JSON)")
