"""YOLO's label files: data.yaml in the forms of Ultralytics and Roboflow, darknet's folders, odd labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers.annotation_sets.yolo import DARKNET, SPLITS, put_darknet, put_labels, put_set
from helpers.listing import listed, put_photos, refusal
from helpers.trees import put_files

from shardwright.core.sources import input_probe
from shardwright.core.sources.yolo import label_path, parse_labels
from shardwright.schemas.annotations import ObjectAnnotation
from shardwright.schemas.errors import UsageError


def test_roboflows_export_and_names_by_id_are_read(tmp_path: Path) -> None:
    for folder in ("train", "valid"):
        photos = put_labels(tmp_path / folder / "labels", put_photos(tmp_path / folder / "images"))
    (tmp_path / "data.yaml").write_text(
        "train: ../train/images\nval: ../valid/images\ntest: ../test/images\n"
        "nc: 3\nnames:\n  0: thing\n  1: no\n  2: bird\n"
    )
    found = listed(tmp_path)
    assert "left out: test ../test/images" in found.input.detected_as
    assert found.refs["valid/images/eagle.jpg"].split == "val"
    found.check_boxes(photos, "train/images/")


def test_lists_of_images_and_a_path_elsewhere_are_read(tmp_path: Path) -> None:
    root = tmp_path / "datasets" / "coco"
    photos = put_set(root, SPLITS, "")
    (root / "data.yaml").unlink()
    (root / "train.txt").write_text("".join(f"./images/train/{p.name}\n" for p in photos["train"]))
    (root / "val.txt").write_text(
        f"images/val/{photos['val'][0].name}\r\n\n{root}/images/val/{photos['val'][1].name}\nimages/gone.jpg\n"
    )
    yolo = "path: ../datasets/coco\ntrain: train.txt\nval: [val.txt]\nnames: [thing, no, bird]\n"
    found = listed(put_files(tmp_path / "yolo", {"coco.yaml": yolo}) / "coco.yaml")
    assert found.reasons() == {"images/gone.jpg": "BAD_ANNOTATION"}
    assert len(found.refs) == 6
    found.check_boxes(photos["train"], "images/train/")
    found.check_boxes(photos["val"], "images/val/")


@pytest.mark.parametrize(
    "line", ["val: http://example.com/val", "val: [images/train, 'https://e.com/x']", "path: http://e.com/x"]
)
def test_a_url_is_not_a_folder_of_images(tmp_path: Path, line: str) -> None:
    put_set(tmp_path, {"train": ("eagle",)}, f"train: images/train\n{line}\nnames: [thing]\n")
    with pytest.raises(UsageError, match=r"data\.yaml: (val|path): https?://.*: there is no storage"):
        listed(tmp_path)


@pytest.mark.parametrize("address", ["http://example.com/a.jpg", "https://e.com/a.jpg", "ftp://e.com/a.jpg"])
def test_a_url_in_a_list_is_refused(tmp_path: Path, address: str) -> None:
    put_set(tmp_path, {"train": ("eagle",)}, "train: train.txt\nval: images/train\nnames: [thing]\n")
    (tmp_path / "train.txt").write_text(f"images/train/eagle.jpg\n\n{address}\n")
    assert f"train.txt: line 3: {address}: there is no storage for" in refusal(tmp_path, "detection")


@pytest.mark.parametrize(("names", "above"), [("classes.txt", ""), ("obj.names", "images")])
def test_darknet_folders_are_read(tmp_path: Path, names: str, above: str) -> None:
    tmp_path /= above
    photos = put_labels(tmp_path, put_photos(tmp_path))
    others = {"README.txt": "taken in May\n", "orphan.txt": "0 0.5 0.5 0.1 0.1\n"}
    found = listed(put_files(tmp_path, {names: "thing\nno\nbird\n\n", **others}))
    others = {names: "not_an_image", "README.txt": "not_an_image"}
    assert found.reasons() == {"orphan.txt": "BAD_ANNOTATION", **others}
    found.check_boxes(photos)


def test_names_and_lists_in_a_large_folder_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_labels(tmp_path, put_photos(tmp_path))
    lists = {"train.txt": "eagle.jpg\napple.jpg\nhouse.jpg\n", "val.txt": "seagull.jpg\n"}
    put_files(tmp_path, {"classes.txt": "thing\nno\nbird\n", **lists})
    monkeypatch.setattr(input_probe, "LISTED", 4)
    monkeypatch.setattr(
        input_probe, "is_one_of_few", lambda name, _: name not in ("classes.txt", "train.txt")
    )
    assert {key: ref.split for key, ref in listed(tmp_path).refs.items()} == {
        **{f"{name}.jpg": "train" for name in ("eagle", "apple", "house")}, "seagull.jpg": "val"
    }  # fmt: skip


@pytest.mark.parametrize("names", ["classes.txt", "obj.names"])
@pytest.mark.parametrize("pattern", ["{kind}/{split}", "{split}/{kind}"])
def test_folders_without_yaml_are_splits(tmp_path: Path, names: str, pattern: str) -> None:
    for split, inner in SPLITS.items():
        photos = put_photos(tmp_path / "in" / pattern.format(kind="images", split=split), inner)
        put_labels(tmp_path / "in" / pattern.format(kind="labels", split=split), photos)
    (tmp_path / "in" / names).write_text("thing\nno\nbird")
    found = listed(tmp_path / "in")
    assert not found.reasons() and {key: ref.split for key, ref in found.refs.items()} == {
        f"{pattern.format(kind='images', split=split)}/{name}.jpg": split
        for split, inner in SPLITS.items()
        for name in inner
    }


def test_images_inside_and_outside_of_split_folders_are_ambiguous(tmp_path: Path) -> None:
    for folder in ("images/train", "images/val", "images/more"):
        put_photos(tmp_path / folder, ["eagle"])
    (tmp_path / "labels").mkdir()
    (tmp_path / "classes.txt").write_text("thing\nno\nbird")
    message = refusal(tmp_path, "detection")
    assert "images/more is not in them; write" in message
    assert "train: images/train, val: images/val, or with train: images if" in message
    for entries, expected in (
        ("train: images/train\nval: images/val", ["train", "val"]),
        ("train: images", ["", "", ""]),
    ):
        (tmp_path / "data.yaml").write_text(f"names: [thing, no, bird]\n{entries}\n")
        assert sorted(ref.split for ref in listed(tmp_path).refs.values()) == expected


def objects_of(data: bytes, is_pose: bool = False) -> Sequence[ObjectAnnotation]:
    """Returns the objects in a label file; class 0 is `a`."""
    return parse_labels(data, {0: "a"}, is_pose).objects or ()


def test_odd_labels_are_read() -> None:
    text = "\ufeff0 0.5 0.5 0.2 0.2\r\n99 0.5 0.5 0.2 0.2\r\n-1 .5 .5 .1 .1\n"
    assert [item.label for item in objects_of(text.encode())] == ["a", "", ""]


def test_outlines_and_key_points_are_read() -> None:
    (item,) = objects_of(b"0 0.1 0.2 0.5 0.2 0.3 0.8")
    assert item.box == (0.1, 0.2, 0.5, 0.8) and item.segmentation == [[0.1, 0.2, 0.5, 0.2, 0.3, 0.8]]
    (item,) = objects_of(b"0 0.5 0.5 0.2 0.4 0.1 0.2 2 0.3 0.4 1", is_pose=True)
    assert item.segmentation is None and item.box == pytest.approx((0.4, 0.3, 0.6, 0.7))


def test_the_confidence_of_a_model_is_ignored() -> None:
    """FiftyOne (include_confidence) and Ultralytics (save_conf) write it after the box."""
    assert objects_of(b"0 0.5 0.5 0.2 0.4 0.93") == objects_of(b"0 0.5 0.5 0.2 0.4")
    assert objects_of(b"0 0.5 0.5 0.2 0.4 1\n") == objects_of(b"0 0.5 0.5 0.2 0.4 0")


@pytest.mark.parametrize("prefix", ["data/", "", "build/darknet/x64/data/"])
@pytest.mark.parametrize(
    ("where", "described"),
    [("set", True), ("set", False), ("set/obj.data", True), ("data", True), ("data", False), (".", True)],
)
def test_lists_give_splits(tmp_path: Path, prefix: str, where: str, described: bool) -> None:
    """Lists that obj.data names, or none; Darknet itself is started in the folder with data/obj.data."""
    root = tmp_path / ("set" if "set" in where else "data")
    photos = put_darknet(root, DARKNET, prefix)
    if not described:
        (root / "obj.data").unlink()
    found = listed(tmp_path / where)
    assert found.input.source == "yolo" and not found.reasons() and found.ids["bird"] == 2
    above = "data/" if where == "." else ""
    assert {key: ref.split for key, ref in found.refs.items()} == {
        f"{above}obj_{split}_data/{photo.name}": split for split, inner in photos.items() for photo in inner
    }
    for split, inner in photos.items():
        found.check_boxes(inner, f"{above}obj_{split}_data/")


def test_one_list_or_two_equal_ones_give_no_splits(tmp_path: Path) -> None:
    put_darknet(tmp_path, {"train": ("eagle", "apple")}, "data/")
    assert {ref.split for ref in listed(tmp_path).refs.values()} == {""}
    with (tmp_path / "obj.data").open("a") as file:
        file.write("valid = data/train.txt\n")
    found = listed(tmp_path)
    assert {ref.split for ref in found.refs.values()} == {""} and len(found.refs) == 2
    assert "left out: valid data/train.txt, which is in a different split" in found.input.detected_as


def test_obj_data_whose_list_is_missing_is_refused(tmp_path: Path) -> None:
    put_darknet(tmp_path, DARKNET, "data/")
    (tmp_path / "valid.txt").unlink()
    assert "valid: 'data/valid.txt' is neither a folder nor a list" in refusal(tmp_path, "detection")
    (tmp_path / "valid.txt").write_text("data/obj_valid_data/rose.jpg\n")
    (tmp_path / "obj.names").unlink()
    with pytest.raises(UsageError, match=r"names no classes; .* or add the file data/obj\.names"):
        listed(tmp_path)


def test_paths_of_another_machine_are_found_by_name(tmp_path: Path) -> None:
    photos = put_darknet(tmp_path, DARKNET, "data/")
    (tmp_path / "train.txt").write_text(
        "/home/ann/images/eagle.jpg\nC:\\Users\\ann\\apple.jpg\nobj_train_data\\house.jpg\n"
    )
    found = listed(tmp_path)
    assert not found.reasons() and len(found.refs) == 5
    found.check_boxes(photos["train"], "obj_train_data/")
    put_photos(tmp_path / "more", ("eagle",))
    (message,) = listed(tmp_path).faults().values()
    assert "could mean more/eagle.jpg and obj_train_data/eagle.jpg" in message


def test_fiftyones_export_is_read(tmp_path: Path) -> None:
    """FiftyOne's YOLOv4Dataset: obj.names, images.txt, and images beside labels in data/."""
    photos = put_labels(tmp_path / "data", put_photos(tmp_path / "data"))
    (tmp_path / "obj.names").write_text("thing\nno\nbird")
    (tmp_path / "images.txt").write_text("".join(f"data/{p.name}\n" for p in photos))
    found = listed(tmp_path)
    assert found.reasons() == {"obj.names": "not_an_image", "images.txt": "not_an_image"}
    found.check_boxes(photos, "data/")


def test_labels_may_be_beside_listed_images_in_a_folder_named_images(tmp_path: Path) -> None:
    photos = put_labels(tmp_path / "images", put_photos(tmp_path / "images"))
    (tmp_path / "train.txt").write_text("".join(f"data/images/{photo.name}\n" for photo in photos))
    (tmp_path / "obj.names").write_text("thing\nno\nbird\n")
    (tmp_path / "obj.data").write_text("train = data/train.txt\nnames = data/obj.names\n")
    found = listed(tmp_path)
    found.check_boxes(photos, "images/")


def test_labels_are_found_in_the_usual_places() -> None:
    assert label_path("/a/images/b/images/c/x.y.jpg") == "/a/images/b/labels/c/x.y.txt"
    assert label_path("/a/b/x.jpg") == "/a/b/x.txt" and label_path("/a/images/x.jpg") == "/a/labels/x.txt"
    assert label_path("images/x.jpg") == "labels/x.txt" and label_path("/images/b/x.jpg") == "/labels/b/x.txt"
    assert label_path("gs://images/b/x.jpg") == "gs://images/b/x.txt"
    assert label_path("x.jpg") == "x.txt" and label_path("images.jpg") == "images.txt"


WRONG_YAML = {
    "train: nowhere\nnames: [a]\n": "neither a folder nor a list",
    "train: images/train\nval: 7\nnames: [a]\n": "neither a folder nor a list",
    "val:\nnames: [a]\n": "names no images",
    "train: images/train\nnames: {x: a}\n": "neither a list of names nor numbers",
    "train: images/train\nnames: [[a, b]]\n": "neither a list of names nor numbers",
    "train: images/train\n": "names no classes",
    "train: [\n": "not YAML",
    "train: !!python/object/apply:os.getcwd []\nnames: [a]\n": "write the value without the tag",
    "- train\n": "names no images",
    "a: &a [x, x]\nb: &b [*a, *a]\ntrain: images/train\nnames: [*b, *b]\n": "write out what *name stands for",
}


@pytest.mark.parametrize("yaml", WRONG_YAML)
def test_wrong_yaml_is_refused(tmp_path: Path, yaml: str) -> None:
    put_set(tmp_path, SPLITS, yaml)
    message = refusal(tmp_path / "data.yaml", "detection", source="yolo")
    assert WRONG_YAML[yaml] in message and "\n" not in message


def test_roboflows_darknet_export_is_read(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        for photo in put_photos(tmp_path / split):
            (tmp_path / split / photo.name).with_suffix(".txt").write_text("1 0.5 0.5 0.25 0.5\n")
        (tmp_path / split / "_darknet.labels").write_text("cat\na dog\n")
    (tmp_path / "README.roboflow.txt").write_text("x")
    found = listed(tmp_path)
    assert found.input.source == "yolo" and found.ids == {"cat": 0, "a dog": 1}
    images = {key: ref for key, ref in found.refs.items() if ref.is_candidate}
    assert len(images) == 8 and {key.split("/")[0]: ref.split for key, ref in images.items()} == {
        "train": "train", "valid": "valid",
    }  # fmt: skip
    assert {ref.label for ref in images.values()} == {"a dog"}
    assert {ref.split for ref in listed(tmp_path / "train").refs.values() if ref.is_candidate} == {""}
    (tmp_path / "valid" / "_darknet.labels").write_text("a dog\ncat\n")
    assert "name different classes" in refusal(tmp_path, "detection")
