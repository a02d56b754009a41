"""Lists with a path and a class on each line, and splits that the names of files state."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.annotation_sets.path_lists import put_imagenet
from helpers.listing import listed, put_photos
from helpers.records import balanced, examples, labels_by_key

from shardwright.core.sources.image_files import splits_of_files
from shardwright.core.sources.tables.texts import is_path_list, path_and_label
from shardwright.pipelines.convert import convert


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a/b.jpg 3", ("a/b.jpg", "3")),
        ("a/b.JPEG\t3", ("a/b.JPEG", "3")),
        ("my cats/1 2.jpg great dane\n", ("my cats/1 2.jpg", "great dane")),
        ("a.jpg copy.jpg 3", ("a.jpg copy.jpg", "3")),
        ("n01/x 7", ("n01/x", "7")),
        ("a.jpg", ("a.jpg", "")),
        ("gs://b/c d 3", ("gs://b/c d", "3")),
    ],
)
def test_lines_are_parsed(line: str, expected: tuple[str, str]) -> None:
    assert path_and_label(line) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.jpg 1\nb.jpg 2\n", True),
        ("a.jpg cat\n\n", True),
        ("a.jpg cat\nb.jpg dog\nc.jpg dog\n\nsome note\n", True),
        ("a.jpg\nb.jpg\n", False),
        ("a.jpg 10,20,30,40,0 1,2,3,4,1\n", False),
        ("Readme of the dataset\n", False),
        ("", False),
    ],
)
def test_lists_are_detected(text: str, expected: bool) -> None:
    assert is_path_list(text.encode()) is expected


def test_a_folder_with_lists_is_read(tmp_path: Path) -> None:
    labels_of_split = put_imagenet(tmp_path)
    found = listed(tmp_path, "classification")
    assert found.input.source == "manifest" and not found.reasons()
    assert "train.txt, val.txt are splits by name" in found.input.detected_as
    assert {key: (ref.split, ref.label) for key, ref in found.refs.items()} == {
        key: (split, label) for split, labels in labels_of_split.items() for key, label in labels.items()
    }
    assert found.ids == {"0": 0, "1": 1}
    alone = listed(tmp_path / "train.txt", "classification")
    assert {ref.split for ref in alone.refs.values()} == {""}


def test_two_inputs_can_be_splits(tmp_path: Path) -> None:
    labels_of_split = put_imagenet(tmp_path / "in")
    lists = [tmp_path / "in" / "train.txt", tmp_path / "in" / "val.txt"]
    made = convert(input=lists, output=tmp_path / "out")
    assert balanced(made.dataset.ledger)
    counts = {name: len(records) for name, records in examples(tmp_path / "out").items()}
    assert counts == {"train": 3, "val": 2}
    assert labels_by_key(tmp_path / "out") == labels_of_split["train"] | labels_of_split["val"]
    assert made.dataset.labels == ("0", "1")


def test_names_and_faults_are_read(tmp_path: Path) -> None:
    first, second, third, _ = (photo.name for photo in put_photos(tmp_path / "images"))
    lines = [f"{first} great dane", f"{second} 3 5", "nothing", "gone.jpg 1", f"./{third}\tcat"]
    (tmp_path / "list.txt").write_text("\ufeff" + "\r\n".join(lines))
    where = {"source": "manifest", "image_root": tmp_path / "images"}
    found = listed(tmp_path / "list.txt", "classification", **where)
    assert found.refs[first].label == "great dane" and found.refs[third].label == "cat"
    assert found.reasons() == {"gone.jpg": "UNREADABLE", "nothing": "UNREADABLE", second: "BAD_ROW"}
    assert "line 2: it has several classes (3, 5)" in found.refs[second].message
    several = listed(tmp_path / "list.txt", "classification", **where, label_separator=" ")
    assert several.refs[second].labels == ("3", "5")


@pytest.mark.parametrize(
    ("paths", "splits"),
    [
        ([""], [""]),
        (["train.csv"], [""]),
        (["train.csv", "train_more.csv"], ["", ""]),
        (["train.csv", "val.csv", "notes.csv"], ["train", "val", ""]),
        (["train/boxes.xml", "test/boxes.xml"], ["train", "test"]),
        (["train/test.xml", "train/val.xml"], ["test", "val"]),
        (["oidv6-train-annotations-bbox.csv", "test-annotations-bbox.csv"], ["train", "test"]),
    ],
)
def test_names_state_splits_only_if_they_differ(paths: list[str], splits: list[str]) -> None:
    assert list(splits_of_files(paths).items()) == list(zip(paths, splits))
