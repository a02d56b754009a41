"""Inputs that lack a part of their annotations, or have text in UTF-16: the message says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.annotation_sets.formats import FORMATS
from helpers.annotation_sets.kitti import put_kitti
from helpers.annotation_sets.semantic_masks import put_set as put_masks
from helpers.annotation_sets.voc import put_list, put_voc
from helpers.annotation_sets.yolo import DARKNET, put_darknet, put_labels
from helpers.listing import listed, put_photos, refusal

from shardwright.core.sources.rules import make_rules
from shardwright.pipelines.cli import main
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError

Capture = pytest.CaptureFixture[str]


def _error(root: Path, layout: str = "classification", **settings: Any) -> str:
    """Returns the message with which an input is refused, without the name of the input."""
    return refusal(root, layout, **settings).replace(str(root), "IN")


@pytest.mark.parametrize("layout", ["classification", "segmentation"])
def test_images_and_masks(layout: str, tmp_path: Path) -> None:
    put_masks(tmp_path / "images", tmp_path / "masks")
    error = _error(tmp_path, layout)
    assert "write --layout segmentation --input IN/images --mask_dir IN/masks" in error
    assert ("--folders classes" in error) == (layout == "classification")
    assert not listed(tmp_path / "images", "segmentation", mask_dir=tmp_path / "masks").reasons()


def test_masks_without_their_folder(tmp_path: Path) -> None:
    put_photos(tmp_path, ["eagle"])
    assert "has no masks; name their folder with --mask_dir." in _error(tmp_path, "segmentation")


@pytest.mark.parametrize("layout", ["classification", "detection"])
@pytest.mark.parametrize("split", ["", "train"])
def test_yolo_without_class_names(layout: str, split: str, tmp_path: Path) -> None:
    put_labels(tmp_path / "labels" / split, put_photos(tmp_path / "images" / split))
    message = "no file names the classes; add IN/classes.txt with a class on each line"
    assert message in _error(tmp_path, layout)
    message = "has neither data.yaml nor obj.data nor a file of class names; add classes.txt"
    assert message in _error(tmp_path, layout, source="yolo")
    (tmp_path / "classes.txt").write_text("thing\nno\nbird\n")
    assert not listed(tmp_path, source="yolo").reasons()


def test_yolo_labels_beside_images_without_class_names(tmp_path: Path) -> None:
    put_labels(tmp_path, put_photos(tmp_path))
    message = "add IN/classes.txt with a class on each line and write --source yolo."
    assert message in _error(tmp_path, "detection")


@pytest.mark.parametrize("source", ["auto", "open_images"])
def test_open_images_without_boxes(source: str, tmp_path: Path) -> None:
    put_photos(tmp_path / "train", ["eagle"])
    (tmp_path / "class-descriptions-boxable.csv").write_text("/m/0thing,thing\n")
    error = _error(tmp_path, "detection", source=source)
    assert "holds no CSV file of Open Images' boxes, such as train-annotations-bbox.csv" in error
    assert "write --input FILE.csv --image_root FOLDER" in error


@pytest.mark.parametrize("layout", ["classification", "detection"])
def test_coco_for_a_folder_of_photos(layout: str, tmp_path: Path) -> None:
    put_photos(tmp_path / "bird", ["eagle"])
    error = _error(tmp_path, layout, source="coco")
    assert "IN holds no COCO JSON; write --input FILE.json" in error and "--source class_folders" in error


_SENTENCE = "is not UTF-8 text but UTF-16; save it as UTF-8, such as with iconv -f UTF-16 -t UTF-8 FILE > NEW"
_TEXTS = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".xml", ".yaml", ".data", ".names")


def _encode(path: Path, encoding: str = "utf-16") -> None:
    path.write_bytes(path.read_text().encode(encoding))


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if form.damage])
def test_every_format_refuses_it(name: str, tmp_path: Path) -> None:
    """Files of single images are bad, a file about all images is refused."""
    form = FORMATS[name]
    form.put(tmp_path)
    for path in tmp_path.rglob("*"):
        if path.suffix in _TEXTS:
            _encode(path)
    # In a folder, nothing shows what these two are.
    place = {"open_images": "boxes.csv", "panoptic": "panoptic.json"}.get(name, "")
    try:
        says = [*listed(tmp_path / place, **form.options(tmp_path)).faults().values()]
    except UsageError as error:
        says = [error.message]
    assert says and all(_SENTENCE in message for message in says)


@pytest.mark.parametrize("name", ["obj.data", "obj.names", "train.txt"])
def test_each_file_of_darknet_refuses_it(name: str, tmp_path: Path) -> None:
    put_darknet(tmp_path, DARKNET, "data/")
    _encode(tmp_path / name)
    error = _error(tmp_path, "detection")
    assert name in error and _SENTENCE in error


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt", "a.json", "a.xml"])
def test_tables_refuse_it(name: str, tmp_path: Path) -> None:
    put_photos(tmp_path, ["eagle"])
    (tmp_path / name).write_text("image,label\neagle.jpg,bird\n", encoding="utf-16")
    assert f"IN {_SENTENCE}" in _error(tmp_path / name)
    error = _error(tmp_path)  # beside images
    assert name in error and _SENTENCE in error


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
    args = ["convert", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"), option, named]
    assert main(args) == 2
    error = capsys.readouterr().err
    assert option in error and _SENTENCE in error
    if option in ("--keep_labels", "--include"):
        file.write_text(f"{line}\n", encoding="utf-8-sig")
        rules = make_rules(ConvertSettings(**{option.removeprefix("--"): named}))
        refs = map(rules.apply, listed(tmp_path / "in", "classification").refs.values())
        assert [ref.key for ref in refs if ref.is_candidate] == ["bird/eagle.jpg"]


@pytest.mark.parametrize("kind", ["kitti", "voc"])
def test_lists_of_splits_refuse_it(kind: str, tmp_path: Path) -> None:
    if kind == "kitti":
        put_kitti(tmp_path)
        (tmp_path / "ImageSets").mkdir()
        (tmp_path / "ImageSets" / "train.txt").write_text("eagle\n")
    else:
        put_voc(tmp_path)
        put_list(tmp_path, "Main", train=("eagle",), val=("apple",))
    (file,) = tmp_path.rglob("train.txt")
    _encode(file)
    error = _error(tmp_path, "detection")
    assert "train.txt" in error and _SENTENCE in error


def test_the_mark_of_utf_8_is_ignored(tmp_path: Path) -> None:
    photos = put_photos(tmp_path / "images")
    put_labels(tmp_path / "labels", photos)
    (tmp_path / "classes.txt").write_text("thing\nno\nbird\n", encoding="utf-8-sig")
    for path in (tmp_path / "labels").iterdir():
        _encode(path, "utf-8-sig")
    found = listed(tmp_path)
    assert found.ids == {"thing": 0, "no": 1, "bird": 2}
    for photo in photos:
        found.check_boxes(f"images/{photo.name}", photo)
