"""The first look at an input finds the files that say what it is, however many images are beside them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shardwright.core.sources import input_probe
from shardwright.core.sources.input_probe import look_at


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_probe, "IMAGES", 2)
    monkeypatch.setattr(input_probe, "OTHERS", 3)


def test_lists_of_images_are_found_among_images(tmp_path: Path) -> None:
    lists = ["a.json", "classes.txt", "instances.json", "labels.csv", "notes", "z.xml"]
    images = [f"{number:02}.{extension}" for number in range(40) for extension in ("jpg", "PNG")]
    for name in lists + images:
        (tmp_path / name).touch()
    files = look_at(str(tmp_path)).files
    assert list(files) == sorted(files)
    assert set(files) - set(images) == set(lists)
    assert len(set(files) & set(images)) == 4


def test_many_files_beside_images_are_not_all_kept(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.txt").touch()
    (tmp_path / "labels.csv").touch()
    files = look_at(str(tmp_path)).files
    assert "labels.csv" in files and len(files) == 4


def test_folders_inside_are_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of source looks into `train`, which may hold a million images."""
    listed: list[str] = []
    scan = os.scandir

    def counted(path: str) -> object:
        listed.append(path)
        return scan(path)

    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "1.jpg").touch()
    monkeypatch.setattr(os, "scandir", counted)
    probe = look_at(str(tmp_path))
    assert [probe.inside("train").files for _ in range(3)] == [("1.jpg",)] * 3
    assert probe.images_below == 1
    assert listed.count(str(tmp_path / "train")) == 1
