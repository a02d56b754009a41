"""KITTI: 15 columns, DontCare, folders with and without labels, lists of splits, faults."""

from __future__ import annotations

import shutil
from pathlib import Path

from helpers.annotation_sets.kitti import put_kitti
from helpers.listing import listed, put_photos

from shardwright.core.sources.kitti import parse_kitti


def test_images_and_objects_are_listed(tmp_path: Path) -> None:
    photos = put_kitti(tmp_path / "training")
    put_photos(tmp_path / "testing" / "image_2", ("rose",))
    found = listed(tmp_path)
    assert found.input.source == "kitti"
    assert "testing/image_2, split testing, left out" in found.input.detected_as
    assert found.reasons() == {f"testing/image_2/{Path('rose.jpg').name}": "not_listed"}
    for photo in photos:
        found.check_boxes(f"training/image_2/{photo.name}", photo)
        objects = found.annotations_of(f"training/image_2/{photo.name}").objects or ()
        assert [item.truncated for item in objects] == [bool(i % 2) for i in range(len(objects))]
        assert [item.occluded for item in objects] == [
            (False, True, True, None)[i] for i in range(len(objects))
        ]


def test_lists_give_splits(tmp_path: Path) -> None:
    put_kitti(tmp_path / "one" / "training")
    (tmp_path / "one" / "ImageSets").mkdir()
    (tmp_path / "one" / "ImageSets" / "train.txt").write_text("eagle\napple\n")
    (tmp_path / "one" / "ImageSets" / "val.txt").write_text("house\n")
    found = listed(tmp_path / "one")
    assert {Path(key).stem: ref.split for key, ref in found.refs.items() if ref.is_candidate} == {
        "eagle": "train", "apple": "train", "house": "val"
    }  # fmt: skip
    assert [*found.reasons().values()] == ["not_listed"]
    (tmp_path / "one" / "ImageSets" / "val.txt").write_text("house\napple\ngone\n")
    assert listed(tmp_path / "one").faults() == {
        "training/image_2/apple.jpg": "it is listed both in train and in val",
        "training/image_2/gone": "it is listed, but its image is missing",
    }


def test_all_folders_are_listed_however_many(tmp_path: Path) -> None:
    photos = put_kitti(tmp_path / "train-00")
    for number in range(1, 30):
        shutil.copytree(tmp_path / "train-00", tmp_path / f"train-{number:02}")
    found = listed(tmp_path)
    assert len(found.refs) == 30 * len(photos) and not found.reasons()
    assert {Path(key).parts[0] for key in found.refs} == {f"train-{number:02}" for number in range(30)}


def test_other_text_files_are_ignored() -> None:
    assert parse_kitti(b"\xef\xbb\xbf\n").objects == ()
