"""COCO's JSON: the listed references, and records that agree with pycocotools."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.annotation_sets.coco import coco_of, save
from helpers.listing import Photo, listed, put_photos
from helpers.records import picture, values
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.plan import plan, print_forecast
from shardwright.schemas.errors import UsageError


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
        (image,) = (image for image in document["images"] if image["id"] == item["image_id"])
        width, height = image["width"], image["height"]
        drawn = np.zeros((height, width), np.uint8, order="F")
        drawn[10:100, 20:60] = 1
        packed = coco_mask.encode(drawn)
        if number % 2:
            item["segmentation"] = {"size": packed["size"], "counts": packed["counts"].decode()}
        else:
            runs = [20 * height + 10, *[90, height - 90] * 39, 90]
            item["segmentation"] = {
                "size": [height, width],
                "counts": [*runs, height * width - sum(runs)],
            }
    path = save(tmp_path / "val2017" / "x.json", document)
    found = listed(path)
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
    with pytest.raises(UsageError, match="name the folder of its images with --image_root"):
        listed(path)
    assert not listed(path, image_root=tmp_path / "val2017").reasons()
    with pytest.raises(UsageError, match=r"--image_root .* is not a folder"):
        listed(path, image_root=tmp_path / "nowhere")
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
    "image['file_name'] = None": "no file_name",
    "image['file_name'] = 7": "no file_name",
    "del image['file_name']": "no file_name",
    "document['images'][-1] = None": "is not an object",
    "document['images'][-1] = [1]": "is not an object",
    "image['id'] = None": "no id",
    "image['id'] = float('nan')": "no id",
    "image['id'] = True": "no id",
    "image['width'] = '640'": "width is '640'",
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
    "item['bbox'] = {'x': 1}": "dropped",
    "item['category_id'] = None": "dropped",
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
    (tmp_path / "val2017").mkdir()
    for name in names:
        shutil.copy(tmp_path / "one" / photo.name, tmp_path / "val2017" / name)
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
    "document['annotations'].append('x')": "not an object",
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


WRONG_FILES: Mapping[str, tuple[str, str]] = {
    "no images": ('{"annotations": [{"image_id": 1}], "categories": []}', "no array of images"),
    "two names": (
        '{"images": [], "categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}',
        "stands for two names",
    ),
}


@pytest.mark.parametrize("what", WRONG_FILES)
def test_other_files_are_not_coco(tmp_path: Path, photos: list[Photo], what: str) -> None:
    text, says = WRONG_FILES[what]
    with pytest.raises(UsageError, match=says) as raised:
        listed(save(tmp_path / "val2017" / "x.json", text), source="coco")
    assert "\n" not in raised.value.message


def test_other_layouts_and_files_are_refused(tmp_path: Path, photos: list[Photo]) -> None:
    path = save(tmp_path / "instances_val2017.json", coco_of(photos))
    with pytest.raises(UsageError, match="choose --layout detection, keypoints, vision, panoptic"):
        listed(path, layout="classification")
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks" / "x.png").touch()
    with pytest.raises(UsageError, match="no panoptic segments"):
        listed(path, layout="panoptic", mask_dir=tmp_path / "masks")
    save(tmp_path / "copy_val2017.json", coco_of(photos))
    with pytest.raises(UsageError, match="both list the objects"):
        listed(tmp_path)


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
    assert [len(found.annotations_of(key).objects or ()) for key in found.refs] == [
        len(p.boxes) for p in photos
    ]
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
