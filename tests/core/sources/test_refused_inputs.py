"""Inputs that lack a part of their annotations, or have text in UTF-16: the message says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.annotation_sets.formats import SETS
from helpers.annotation_sets.kitti import put_kitti
from helpers.annotation_sets.semantic_masks import put_set as put_masks
from helpers.annotation_sets.voc import put_list, put_voc
from helpers.annotation_sets.yolo import DARKNET, SPLITS, YAML, put_darknet, put_labels, put_set
from helpers.listing import put_photos
from helpers.records import labels_by_key, quarantine

from shardwright.pipelines.cli import main

Capture = pytest.CaptureFixture[str]


def _error(root: Path, capsys: Capture, *options: str) -> str:
    """Returns the message with which an input is refused, without the name of the input."""
    assert main(["convert", "--input", str(root), "--output", str(root.with_name("out")), *options]) == 2
    return capsys.readouterr().err.replace(str(root), "IN")


@pytest.mark.parametrize("layout", ["classification", "segmentation"])
def test_images_and_masks(layout: str, tmp_path: Path, capsys: Capture) -> None:
    root = tmp_path / "in"
    put_masks(root / "images", root / "masks")
    error = _error(root, capsys, "--layout", layout)
    assert "write --layout segmentation --input IN/images --mask_dir IN/masks" in error
    assert ("--folders classes" in error) == (layout == "classification")
    options = ["--layout", "segmentation", "--mask_dir", str(root / "masks")]
    args = ["convert", "--input", str(root / "images"), "--output", str(tmp_path / "out"), *options]
    assert main(args) == 0


def test_masks_without_their_folder(tmp_path: Path, capsys: Capture) -> None:
    put_photos(tmp_path / "in", ["eagle"])
    error = _error(tmp_path / "in", capsys, "--layout", "segmentation")
    assert "has no masks; name their folder with --mask_dir." in error


@pytest.mark.parametrize("layout", ["classification", "detection"])
@pytest.mark.parametrize("split", ["", "train"])
def test_yolo_without_class_names(layout: str, split: str, tmp_path: Path, capsys: Capture) -> None:
    root = tmp_path / "in"
    put_labels(root / "labels" / split, put_photos(root / "images" / split))
    error = _error(root, capsys, "--layout", layout)
    assert "no file names the classes; add IN/classes.txt with a class on each line" in error
    error = _error(root, capsys, "--layout", layout, "--source", "yolo")
    assert "has neither data.yaml nor obj.data nor a file of class names; add classes.txt" in error
    (root / "classes.txt").write_text("thing\nno\nbird\n")
    options = ["--layout", "detection", "--source", "yolo", "--output", str(tmp_path / "out")]
    assert main(["convert", "--input", str(root), *options]) == 0


def test_yolo_labels_beside_images_without_class_names(tmp_path: Path, capsys: Capture) -> None:
    put_labels(tmp_path / "in", put_photos(tmp_path / "in"))
    error = _error(tmp_path / "in", capsys, "--layout", "detection")
    assert "add IN/classes.txt with a class on each line and write --source yolo." in error


@pytest.mark.parametrize("source", ["auto", "open_images"])
def test_open_images_without_boxes(source: str, tmp_path: Path, capsys: Capture) -> None:
    put_photos(tmp_path / "in" / "train", ["eagle"])
    (tmp_path / "in" / "class-descriptions-boxable.csv").write_text("/m/0thing,thing\n")
    error = _error(tmp_path / "in", capsys, "--layout", "detection", "--source", source)
    assert "holds no CSV file of Open Images' boxes, such as train-annotations-bbox.csv" in error
    assert "write --input FILE.csv --image_root FOLDER" in error


@pytest.mark.parametrize("layout", ["classification", "detection"])
def test_coco_for_a_folder_of_photos(layout: str, tmp_path: Path, capsys: Capture) -> None:
    put_photos(tmp_path / "in" / "bird", ["eagle"])
    error = _error(tmp_path / "in", capsys, "--source", "coco", "--layout", layout)
    assert "IN holds no COCO JSON; write --input FILE.json" in error and "--source class_folders" in error


_SENTENCE = "is not UTF-8 text but UTF-16; save it as UTF-8, such as with iconv -f UTF-16 -t UTF-8 FILE > NEW"
_TEXTS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".xml", ".yaml", ".data", ".names")


def _encode(path: Path, encoding: str = "utf-16") -> None:
    path.write_bytes(path.read_text().encode(encoding))


def _refused(root: Path, capsys: Capture, *options: str) -> str:
    """Checks that an input is refused because of UTF-16; returns the message."""
    assert main(["convert", "--input", str(root), "--output", str(root.with_name("out")), *options]) == 2
    error = capsys.readouterr().err
    assert _SENTENCE in error
    return error


@pytest.mark.parametrize("name", [name for name in SETS if name != "semantic_masks"])
def test_every_format_refuses_it(name: str, tmp_path: Path, capsys: Capture) -> None:
    root = tmp_path / "in"
    root.mkdir()
    put, layout = SETS[name]
    layout = "detection" if name == "cityscapes" else layout  # its masks need no text
    inner = put(root)
    texts = [path for path in root.rglob("*") if path.suffix in _TEXTS]
    for path in texts:
        _encode(path)
    assert texts
    _refused(root / inner if inner else root, capsys, "--layout", layout)


@pytest.mark.parametrize("name", ["obj.data", "obj.names", "train.txt"])
def test_each_file_of_darknet_refuses_it(name: str, tmp_path: Path, capsys: Capture) -> None:
    put_darknet(tmp_path / "in", DARKNET, "data/")
    _encode(tmp_path / "in" / name)
    assert name in _refused(tmp_path / "in", capsys, "--layout", "detection")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt", "a.json", "a.xml"])
def test_a_file_as_input_refuses_it(name: str, tmp_path: Path, capsys: Capture) -> None:
    put_photos(tmp_path, ["eagle"])
    (tmp_path / name).write_text("image,label\neagle.jpg,bird\n", encoding="utf-16")
    assert name in _refused(tmp_path / name, capsys)


def test_a_table_beside_images_refuses_it(tmp_path: Path, capsys: Capture) -> None:
    put_photos(tmp_path / "in" / "images", ["eagle"])
    (tmp_path / "in" / "a.csv").write_text("image,label\neagle.jpg,bird\n", encoding="utf-16")
    assert "a.csv" in _refused(tmp_path / "in", capsys)


@pytest.mark.parametrize(
    "option", ["--class_names", "--keep_labels", "--rename_labels", "--include", "--exclude"]
)
def test_files_that_options_name_refuse_it(option: str, tmp_path: Path, capsys: Capture) -> None:
    put_photos(tmp_path / "in" / "bird", ["eagle"])
    put_photos(tmp_path / "in" / "fruit", ["apple"])
    file = tmp_path / "list.txt"
    line = "bird=animal" if option == "--rename_labels" else "bird/eagle.jpg" if "clude" in option else "bird"
    file.write_text(f"{line}\n", encoding="utf-16")
    named = f"@{file}" if "clude" in option else str(file)
    assert option in _refused(tmp_path / "in", capsys, option, named)
    if option in ("--keep_labels", "--include"):
        file.write_text(f"{line}\n", encoding="utf-8-sig")
        args = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), option, named]
        assert main(["convert", *args]) == 0
        assert labels_by_key(tmp_path / "out") == {"bird/eagle.jpg": "bird"}


@pytest.mark.parametrize("kind", ["kitti", "voc"])
def test_lists_of_splits_refuse_it(kind: str, tmp_path: Path, capsys: Capture) -> None:
    if kind == "kitti":
        put_kitti(tmp_path / "in")
        file = tmp_path / "in" / "ImageSets" / "train.txt"
        file.parent.mkdir()
        file.write_text("eagle\n")
    else:
        put_voc(tmp_path / "in")
        put_list(tmp_path / "in", "Main", train=("eagle",), val=("apple",))
        file = tmp_path / "in" / "ImageSets" / "Main" / "train.txt"
    _encode(file)
    assert "train.txt" in _refused(tmp_path / "in", capsys, "--layout", "detection")


def test_the_labels_of_one_image_in_it_are_bad(tmp_path: Path) -> None:
    put_set(tmp_path / "in", SPLITS, YAML)
    _encode(tmp_path / "in" / "labels" / "train" / "apple.txt")
    args = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--layout", "detection"]
    assert main(["convert", *args, "--max_bad_fraction", "1"]) == 0
    (line,) = quarantine(tmp_path / "out").values()
    message = f"apple.txt: its annotation file {_SENTENCE}"
    assert line["message"] == message and line["reason"] == "BAD_ANNOTATION"


def test_the_mark_of_utf_8_is_ignored(tmp_path: Path) -> None:
    photos = put_photos(tmp_path / "in" / "images")
    put_labels(tmp_path / "in" / "labels", photos)
    (tmp_path / "in" / "classes.txt").write_text("thing\nno\nbird\n", encoding="utf-8-sig")
    for path in (tmp_path / "in" / "labels").iterdir():
        _encode(path, "utf-8-sig")
    args = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), "--layout", "detection"]
    assert main(["convert", *args]) == 0
    assert not quarantine(tmp_path / "out")
    assert (tmp_path / "out" / "labels.txt").read_text().split() == ["1:thing", "2:no", "3:bird"]
