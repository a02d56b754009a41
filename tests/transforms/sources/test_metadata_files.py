"""Manifests beside their images, like Hugging Face's image folders: the folder is the input."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers.hostile import document
from helpers.manifests import PICTURES, ROWS, write_csv, write_jsonl
from helpers.records import labels_by_key
from helpers.repository import PHOTOS

from shardwright.pipelines.convert import convert
from shardwright.transforms.sources import input_probe as probe


def made(folder: Path, tmp_path: Path) -> None:
    convert(input=str(folder), output=str(tmp_path / "out"), resize=16)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_metadata_beside_its_images_is_read(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "in"
    root.mkdir()
    rows = []
    for path, label in ROWS:
        shutil.copy(PHOTOS / path, root / Path(path).name)
        rows.append((Path(path).name, label))
    if kind == "csv":
        write_csv(root / "metadata.csv", [("file_name", "label"), *rows])
    else:
        write_jsonl(root / "metadata.jsonl", [{"file_name": name, "label": label} for name, label in rows])
    made(root, tmp_path)
    assert labels_by_key(tmp_path / "out") == dict(rows)


def test_metadata_in_a_large_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_IMAGES", 3)
    test_metadata_beside_its_images_is_read(tmp_path, "jsonl")


def test_metadata_in_split_folders_is_read(tmp_path: Path) -> None:
    root = tmp_path / "in"
    for split in ("train", "test"):
        (root / split).mkdir(parents=True)
        shutil.copy(PHOTOS / PICTURES[0], root / split / "1.jpg")
        write_csv(root / split / "metadata.csv", [("file_name", "label"), ("1.jpg", f"a {split}")])
    made(root, tmp_path)
    assert labels_by_key(tmp_path / "out") == {"train/1.jpg": "a train", "test/1.jpg": "a test"}
    assert set(document(tmp_path / "out")["splits"]) == {"train", "test"}


@pytest.mark.parametrize("rows", [
    [("file_name", "text"), ("a/1.jpg", "no class")],
    [("file_name", "label"), ("elsewhere.jpg", "b")],
    [("file_name", "label"), ("a/1.jpg", "b")],
    [("width", "height"), (1, 2)],
])  # fmt: skip
def test_class_folders_with_other_csv_files_are_not_manifests(
    tmp_path: Path, rows: list[tuple[str, str]]
) -> None:
    for name in ("a", "b"):
        (tmp_path / "in" / name).mkdir(parents=True)
        shutil.copy(PHOTOS / PICTURES[0], tmp_path / "in" / name / "1.jpg")
    write_csv(tmp_path / "in" / "metadata.csv", rows)
    made(tmp_path / "in", tmp_path)
    assert labels_by_key(tmp_path / "out") == {"a/1.jpg": "a", "b/1.jpg": "b"}
