"""COCO's JSON: objects, key points and panoptic segments, and records that agree with pycocotools."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.annotation_sets.coco import coco_of, panoptic_of, save
from helpers.depths import findings_of
from helpers.fewer_imports import late
from helpers.listing import Photo, listed, put_photos, refusal
from helpers.records import examples, picture, value, values
from helpers.trees import put_files
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

from shardwright import loader
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.plan import plan, print_forecast


@pytest.fixture
def photos(tmp_path: Path) -> list[Photo]:
    return put_photos(tmp_path / "val2017")


def test_records_agree_with_pycocotools(tmp_path: Path, photos: list[Photo]) -> None:
    path = save(tmp_path / "annotations" / "instances_val2017.json", coco_of(photos))
    known = COCO(str(path))
    by_name = {image["file_name"]: image for image in known.imgs.values()}
    records = listed(path).records()
    assert records.keys() == by_name.keys()
    for name, record in records.items():
        image = by_name[name]
        annotations = known.imgToAnns[image["id"]]
        assert values(record, "image/object/class/label") == [item["category_id"] for item in annotations]
        corners = [values(record, f"image/object/bbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")]
        size = np.array([image["width"], image["height"]] * 2)
        for place, item in enumerate(annotations):
            x, y, width, height = item["bbox"]
            expected = np.array([x, y, x + width, y + height]) / size
            np.testing.assert_allclose([side[place] for side in corners], expected, atol=1e-6)
            mask = picture(record, "image/object/mask", place)
            theirs = known.annToMask(item)
            both = np.logical_and(mask, theirs).sum() / max(np.logical_or(mask, theirs).sum(), 1)
            assert both > 0.97


def test_run_lengths_are_kept_as_they_are(tmp_path: Path, photos: list[Photo]) -> None:
    document = coco_of(photos)
    for number, item in enumerate(document["annotations"]):
        counts = coco_mask.encode(np.eye(40, dtype=np.uint8, order="F"))["counts"].decode()
        item["segmentation"] = {"size": [40, 40], "counts": counts if number % 2 else [0, 900, 700]}
    found = listed(save(tmp_path / "val2017" / "x.json", document))
    outlines = [item.segmentation for ref in found.refs for item in found.annotations_of(ref).objects or ()]
    assert sorted(map(str, outlines)) == sorted(str(item["segmentation"]) for item in document["annotations"])


def test_a_folder_of_splits_may_have_captions_points_and_stuff(tmp_path: Path, photos: list[Photo]) -> None:
    others = put_photos(tmp_path / "train2017", ("rose", "coach", "library"))
    for split, found in (("train", others), ("val", photos)):
        document = coco_of(found)
        captions = [
            {"id": i, "image_id": image["id"], "caption": f" {image['file_name']} no. {i} "}
            for i in range(2)
            for image in document["images"]
        ]
        documents = dict.fromkeys(("instances", "person_keypoints", "stuff"), document)
        documents["captions"] = {"images": document["images"], "annotations": captions}
        for kind, content in documents.items():
            save(tmp_path / "annotations" / f"{kind}_{split}2017.json", content)
    for where in (tmp_path, tmp_path / "annotations"):
        found_refs = listed(where)
        assert "(--layout keypoints stores them)" in found_refs.input.detected_as
        assert "stuff_val2017.json (its objects are in the other files)" in found_refs.input.detected_as
        assert found_refs.refs.keys() == {
            *(f"val2017/{photo.name}" for photo in photos),
            *(f"train2017/{photo.name}" for photo in others),
        }
        for key, ref in found_refs.refs.items():
            assert ref.split == ("train" if "train" in key else "val")
            name = key.rpartition("/")[2]
            assert found_refs.annotations_of(key).captions == (f"{name} no. 0", f"{name} no. 1")
    record = found_refs.records()["train2017/rose.jpg"]
    assert values(record, "image/caption") == ["rose.jpg no. 0", "rose.jpg no. 1"]


def test_one_file_gives_no_split_and_captions_alone_suffice(tmp_path: Path, photos: list[Photo]) -> None:
    document = coco_of(photos)
    captions = [{"id": 1, "image_id": document["images"][0]["id"], "caption": "a bird"}]
    path = save(tmp_path / "captions_val2017.json", {"images": document["images"], "annotations": captions})
    found = listed(path)
    assert {ref.split for ref in found.refs.values()} == {""}
    assert found.annotations_of(photos[0].name).captions == ("a bird",)
    assert found.annotations_of(photos[0].name).objects is None


def test_two_splits_may_share_a_folder_of_images(tmp_path: Path, photos: list[Photo]) -> None:
    (tmp_path / "val2017").rename(tmp_path / "images")
    save(tmp_path / "train.json", coco_of(photos[:2]))
    save(tmp_path / "test.json", coco_of(photos[2:]))
    found = listed(tmp_path)
    assert [found.refs[f"images/{photo.name}"].split for photo in photos] == ["train"] * 2 + ["test"] * 2


def test_images_are_found_in_the_usual_places_and_in_image_root(tmp_path: Path, photos: list[Photo]) -> None:
    path = save(tmp_path / "elsewhere" / "deep" / "labels.json", coco_of(photos))
    assert "name the folder of its images with --image_root" in refusal(path, "detection")
    assert not listed(path, image_root=tmp_path / "val2017").reasons()
    nowhere = tmp_path / "nowhere"
    assert f"--image_root {nowhere} is not a folder" in refusal(path, "detection", image_root=nowhere)
    # The names of images may be at the end of a file.
    document = coco_of(photos)
    document = {name: document[name] for name in ("annotations", "categories", "images")}
    document["annotations"][0]["padding"] = "x" * (2 << 20)
    assert not listed(save(tmp_path / "instances_val2017.json", document), source="coco").reasons()


def bad(document: dict[str, Any], change: str) -> None:
    """Makes a document bad; `{}` is replaced by the first image or annotation."""
    image, item = document["images"][-1], document["annotations"][0]
    exec(change, {"document": document, "image": image, "item": item})


BAD_IMAGES = {
    "image['file_name'] = '../secret.jpg'": "its image is missing",
    "image['file_name'] = '/etc/passwd.jpg'": "its image is missing",
    "image['file_name'] = 'http://x/y.jpg'": "its image is missing",
    "image['file_name'] = 'a\\0b.jpg'": "its image is missing",
    "image['file_name'] = 7": "no file_name",
    "del image['file_name']": "no file_name",
    "document['images'][-1] = None": "is not an object",
    "image['id'] = float('nan')": "no id",
    "image['id'] = True": "no id",
    "image['height'] = float('inf')": "height is inf",
    "image['height'] = 10.5": "height is 10.5",
    "image['file_name'] = 'gone.jpg'": "missing",
    "image['file_name'] = '.'": "its image is missing",
    "image['file_name'] = '\\ud800.jpg'": "missing",
    "image['id'] = document['images'][0]['id']": "the same id",
    "document['images'].append({**image, 'id': 9999})": "images 4 and 5 of instances_val2017.json both",
}


@pytest.mark.parametrize("change", BAD_IMAGES)
def test_bad_images_are_quarantined(tmp_path: Path, photos: list[Photo], change: str) -> None:
    document = coco_of(photos)
    bad(document, change)
    found = listed(save(tmp_path / "instances_val2017.json", document))
    wrong = found.faults()
    assert any(BAD_IMAGES[change] in message for message in wrong.values()), wrong
    assert photos[1].name in found.refs.keys() - wrong.keys()
    for key in wrong:
        ref = found.refs[key]
        assert key.encode() and ref.message.encode() and os.fsencode(ref.uri)
        assert ref.split == ("none" if ":" in key else "")


BAD_ANNOTATIONS = {
    "item['bbox'] = [1, 2, 3]": "dropped",
    "item['bbox'] = [1, 2, 3, '4']": "dropped",
    "item['bbox'] = [1, 2, float('nan'), 4]": "dropped",
    "item['bbox'] = [1, 2, 10**400, 4]": "dropped",
    "item['bbox'] = 'all'": "dropped",
    "item['category_id'] = 99": "dropped",
    "item['category_id'] = [1]": "dropped",
    "del item['category_id']": "dropped",
    "item['segmentation'] = [[1, 2, 'x', 4, 5, 6]]": "dropped",
    "item['area'] = 'large'": "written",
    "item['iscrowd'] = {}": "written",
    "item['segmentation'] = None": "written",
    "item['segmentation'] = []": "written",
    "item['bbox'] = None": "written",
}


def test_bad_annotations_are_dropped_or_fail_their_image(tmp_path: Path) -> None:
    """Each image has one of them besides a sound one."""
    photo = put_photos(tmp_path / "one")[2]
    assert len(photo.boxes) == 2
    names = {f"{number:02d}.jpg": change for number, change in enumerate(BAD_ANNOTATIONS)}
    put_files(tmp_path / "val2017", dict.fromkeys(names, (tmp_path / "one" / photo.name).read_bytes()))
    document = coco_of([photo._replace(name=name) for name in names])
    images = {image["file_name"]: image["id"] for image in document["images"]}
    for name, change in names.items():
        item = next(item for item in document["annotations"] if item["image_id"] == images[name])
        exec(change, {"item": item})
    found = listed(save(tmp_path / "instances_val2017.json", document))
    dropped = {name for name, change in names.items() if BAD_ANNOTATIONS[change] == "dropped"}
    boxes = {name: len(values(item, "image/object/bbox/xmin")) for name, item in found.records().items()}
    assert boxes == {name: 2 - (name in dropped) for name in names}
    strict = found.entries(bad_boxes="fail").items()
    assert {name for name, entry in strict if entry.reason == "BAD_ANNOTATION"} == dropped


STRAYS = {
    "document['annotations'].append(None)": "not an object",
    "document['annotations'].append({})": "no image_id",
    "document['annotations'].append({'image_id': True})": "no image_id",
    "document['annotations'].append({'image_id': 424242, 'id': 5})": "424242",
    "document['annotations'].append({'image_id': '100', 'id': 5})": "'100'",
}


@pytest.mark.parametrize("change", STRAYS)
def test_annotations_without_an_image_are_reported(tmp_path: Path, photos: list[Photo], change: str) -> None:
    document = coco_of(photos)
    bad(document, change)
    found = listed(save(tmp_path / "instances_val2017.json", document))
    key = f"instances_val2017.json:annotation {len(document['annotations'])}"
    assert found.reasons() == {key: "BAD_ANNOTATION"}
    assert STRAYS[change] in found.refs[key].message and found.refs[key].split == "none"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"annotations": [{"image_id": 1}], "categories": []}', "no array of images"),
        ('{"images": [], "categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}', "for two names"),
    ],
)
def test_other_files_are_not_coco(tmp_path: Path, photos: list[Photo], text: str, says: str) -> None:
    message = refusal(save(tmp_path / "val2017" / "x.json", text), "detection", source="coco")
    assert says in message and "\n" not in message


def test_other_layouts_and_files_are_refused(tmp_path: Path, photos: list[Photo]) -> None:
    path = save(tmp_path / "instances_val2017.json", coco_of(photos))
    assert "choose --layout detection, keypoints, vision, panoptic" in refusal(path)
    put_files(tmp_path, {"masks/x.png": ""})
    assert "no panoptic segments" in refusal(path, "panoptic", mask_dir=tmp_path / "masks")
    save(tmp_path / "copy_val2017.json", coco_of(photos))
    assert "both list the objects" in refusal(tmp_path, "detection")


def test_the_listing_does_not_depend_on_the_order(tmp_path: Path, photos: list[Photo]) -> None:
    document = coco_of(photos)
    path = save(tmp_path / "instances_val2017.json", document)
    first = listed(path)
    shuffled = {name: document[name] for name in ("categories", "annotations", "images")}
    shuffled["images"] = document["images"][::-1]
    save(path, json.dumps(shuffled, indent=3, ensure_ascii=False))
    assert listed(path).refs == first.refs


def test_gaps_in_ids_are_not_classes(
    tmp_path: Path, photos: list[Photo], capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path / "in" / "instances_val2017.json", coco_of(photos))
    (tmp_path / "val2017").rename(tmp_path / "in" / "val2017")
    settings = {"input": tmp_path / "in", "layout": "detection"}
    made = convert(**settings, output=tmp_path / "out", verify="none").dataset
    assert made.classes == {3: "thing", 16: "bird"} and len(made.labels) == 16
    assert (tmp_path / "out" / "labels.txt").read_text() == "3:thing\n16:bird\n"
    label_map = (tmp_path / "out" / "label_map.pbtxt").read_text()
    assert label_map.count("item") == 2 and "id: 3" in label_map and "id: 16" in label_map
    assert " of 2 classes" in json.loads((tmp_path / "out" / "croissant.json").read_text())["description"]
    assert main(["inspect", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "thing" in shown and " 15 " not in shown
    print_forecast(plan(**settings))
    shown = capsys.readouterr().out
    assert "4 images in 2 classes" in shown and " 15 " not in shown
    # The names file of one dataset can be used for the next one.
    names = tmp_path / "names.txt"
    names.write_text("1:person\n3:thing\n16:bird\n")
    other = plan(**settings, class_names=names).plan
    assert other.classes(1) == {1: "person", 3: "thing", 16: "bird"}


PATHS = (
    "C:\\\\Users\\\\ann\\\\photos\\\\{}",
    "/home/ann/photos/{}",
    "photos\\\\{}",
    "{root}/inner/{}",
    "file:///home/ann/{}",
    "../{}",
    "{}",
)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("pattern", PATHS)
def test_paths_of_another_machine_are_found_by_name(
    tmp_path: Path, photos: list[Photo], pattern: str, beside: bool
) -> None:
    (tmp_path / "val2017").rename(tmp_path / "data")
    root = tmp_path / "data"
    if not beside:
        root.rename(tmp_path / "inner")
        root.mkdir()
        (tmp_path / "inner").rename(root / "inner")
    document = coco_of(photos)
    for image in document["images"]:
        image["file_name"] = pattern.replace("\\\\", "\\").format(image["file_name"], root=root)
    path = save(tmp_path / "labels.json", document)
    where = {} if beside else {"image_root": root}
    found = listed(path, **where)
    assert not found.reasons()
    if beside:  # labels.json beside data, as in FiftyOne's COCODetectionDataset
        assert listed(tmp_path).refs.keys() == {f"data/{photo.name}" for photo in photos}
    assert found.refs.keys() == {photo.name if beside else f"inner/{photo.name}" for photo in photos}
    objects = [len(found.annotations_of(key).objects or ()) for key in found.refs]
    assert objects == [len(photo.boxes) for photo in photos]
    (root / "other").mkdir()
    shutil.copy(root / ("" if beside else "inner") / photos[1].name, root / "other" / photos[1].name)
    found = listed(path, **where)
    if pattern == ("{}" if beside else "{root}/inner/{}"):
        assert not found.reasons()  # the path is right
        return
    (message,) = found.faults().values()
    assert "its name alone could mean" in message


def test_two_paths_to_one_image_are_a_duplicate(tmp_path: Path, photos: list[Photo]) -> None:
    document = coco_of(photos)
    again = {**document["images"][1], "id": 9999, "file_name": f"C:\\photos\\{photos[1].name}"}
    document["images"].append(again)
    found = listed(save(tmp_path / "instances_val2017.json", document))
    assert set(found.reasons()) == {photos[1].name, "instances_val2017.json:image 5"}


tf = late("tensorflow")

BIRD, THING = ["beak", "tail"], ["corner", "beak", "edge"]
KEYPOINT = "image/object/keypoint/"


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
    split = "val" if "val" in made.dataset.splits else "train"
    for batch in loader.load(str(out), split=split, batch_size=None):
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
                rows = np.reshape(item.keypoints or (), (-1, 3)).tolist()
                points = dict(zip(annotations.keypoint_names, rows))
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
    assert message in refusal(path, "keypoints")


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
    assert "does not provide key points; choose --layout detection" in refusal(tmp_path, "keypoints")


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
    assert "only panoptic segments" in refusal(path, "detection")
    shutil.move(folder / "panoptic_val2017", tmp_path / "elsewhere")
    assert "--mask_dir" in refusal(path, "panoptic")
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
