"""Folders that lack a part of their annotations: the message says what is missing and what to write."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.annotation_sets.semantic_masks import put_set as put_masks
from helpers.annotation_sets.yolo import put_labels
from helpers.listing import put_photos

from shardwright.pipelines.cli import main


def _error(root: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Returns the message with which an input is refused, without the name of the input."""
    output = str(root.with_name("out"))
    assert main(["convert", "--input", str(root), "--output", output, *options]) == 2
    return capsys.readouterr().err.replace(str(root), "IN")


@pytest.mark.parametrize("layout", ["classification", "segmentation"])
def test_images_and_masks(layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "in"
    put_masks(root / "images", root / "masks")
    error = _error(root, capsys, "--layout", layout)
    assert "write --layout segmentation --input IN/images --mask_dir IN/masks" in error
    assert ("--folders classes" in error) == (layout == "classification")
    options = ["--layout", "segmentation", "--mask_dir", str(root / "masks")]
    args = ["convert", "--input", str(root / "images"), "--output", str(tmp_path / "out"), *options]
    assert main(args) == 0


def test_masks_without_their_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_photos(tmp_path / "in", ["eagle"])
    error = _error(tmp_path / "in", capsys, "--layout", "segmentation")
    assert "has no masks; name their folder with --mask_dir." in error


@pytest.mark.parametrize("layout", ["classification", "detection"])
@pytest.mark.parametrize("split", ["", "train"])
def test_yolo_without_class_names(
    layout: str, split: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "in"
    put_labels(root / "labels" / split, put_photos(root / "images" / split))
    error = _error(root, capsys, "--layout", layout)
    assert "no file names the classes; add IN/classes.txt with a class on each line" in error
    error = _error(root, capsys, "--layout", layout, "--source", "yolo")
    assert "has neither data.yaml nor obj.data nor a file of class names; add classes.txt" in error
    (root / "classes.txt").write_text("thing\nno\nbird\n")
    options = ["--layout", "detection", "--source", "yolo", "--output", str(tmp_path / "out")]
    assert main(["convert", "--input", str(root), *options]) == 0


def test_yolo_labels_beside_images_without_class_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_labels(tmp_path / "in", put_photos(tmp_path / "in"))
    error = _error(tmp_path / "in", capsys, "--layout", "detection")
    assert "add IN/classes.txt with a class on each line and write --source yolo." in error


@pytest.mark.parametrize("source", ["auto", "open_images"])
def test_open_images_without_boxes(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_photos(tmp_path / "in" / "train", ["eagle"])
    (tmp_path / "in" / "class-descriptions-boxable.csv").write_text("/m/0thing,thing\n")
    error = _error(tmp_path / "in", capsys, "--layout", "detection", "--source", source)
    assert "holds no CSV file of Open Images' boxes, such as train-annotations-bbox.csv" in error
    assert "write --input FILE.csv --image_root FOLDER" in error


@pytest.mark.parametrize("layout", ["classification", "detection"])
def test_coco_for_a_folder_of_photos(layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_photos(tmp_path / "in" / "bird", ["eagle"])
    error = _error(tmp_path / "in", capsys, "--source", "coco", "--layout", layout)
    assert "IN holds no COCO JSON; write --input FILE.json" in error and "--source class_folders" in error
