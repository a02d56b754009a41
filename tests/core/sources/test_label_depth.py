"""`--label_depth`: class names made of several folders, on a disk and in archives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import shard_hashes
from helpers.packing import by_key, list_refs, tar_of, zip_of
from helpers.repository import PHOTOS
from hypothesis import given
from hypothesis import strategies as st

from shardwright.core.records.framing import read_records
from shardwright.core.sources.folder_tree import FolderTree
from shardwright.pipelines.convert import convert
from shardwright.schemas import units
from shardwright.schemas.errors import UsageError
from shardwright.schemas.example import parse_example

JPEG = (PHOTOS / "fruit" / "apple.jpg").read_bytes()
DEPTHS = ("1", "2", "3", "all", "last")
#: Path -> its class at each of these depths.
TREE = {
    "animals/cat/1.jpg": ("animals", "animals/cat", "animals/cat", "animals/cat", "cat"),
    "animals/cat/old/2.jpg": ("animals", "animals/cat", "animals/cat/old", "animals/cat/old", "old"),
    "animals/3.jpg": ("animals",) * 5,
    "plants/a/b/c/4.jpg": ("plants", "plants/a", "plants/a/b", "plants/a/b/c", "c"),
    "5.jpg": ("",) * 5,
}


def write_tree(root: Path, paths: Mapping[str, Any]) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(JPEG)
    return root


def classes(found: list[Any], prefix: str = "") -> dict[str, tuple[str, str]]:
    """Returns key -> (split, class)."""
    return {key.removeprefix(prefix): (ref.split, ref.label) for key, ref in by_key(found).items()}


@pytest.mark.parametrize(("number", "depth"), enumerate(DEPTHS))
@pytest.mark.parametrize("splits", [False, True])
def test_folders_on_a_disk_give_class_names(tmp_path: Path, number: int, depth: str, splits: bool) -> None:
    expected = {path: ("", names[number]) for path, names in TREE.items()}
    if splits:
        expected = {
            f"{split}/{path}": (split, name)
            for path, (_, name) in expected.items()
            for split in ("train", "val")
        }
    write_tree(tmp_path / "in", expected)
    assert classes(list_refs(tmp_path / "in", "class_folders", label_depth=depth)) == expected


@pytest.mark.parametrize(("number", "depth"), enumerate(DEPTHS))
@pytest.mark.parametrize("above", ["", "data/", "train/", "data/train/", "val/"])
@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_folders_in_an_archive_give_class_names(
    tmp_path: Path, number: int, depth: str, above: str, pack: Any
) -> None:
    """A folder around everything that is not a split is ignored."""
    paths = {path: names for path, names in TREE.items() if path != "5.jpg"}
    file = tmp_path / ("a.zip" if pack is zip_of else "a.tar")
    file.write_bytes(pack({above + path: JPEG for path in paths}))
    split = above.rstrip("/").removeprefix("data").lstrip("/")
    assert classes(list_refs(file, label_depth=depth), f"{file.name}!{above}") == {
        path: (split, names[number]) for path, names in paths.items()
    }


@pytest.mark.parametrize(
    ("members", "named"),
    [
        (["animals/cat/1", "animals/dog/2"], ["cat", "animals/cat", "animals/cat", "cat", "cat"]),
        (["x/animals/cat/1", "x/animals/dog/2"], ["cat", "animals/cat", "x/animals/cat", "cat", "cat"]),
        (["x/animals/cat/1", "x/more/2"], ["animals", "animals/cat", "x/animals/cat", "animals/cat", "cat"]),
        (["x/train/cat/1", "x/test/dog/2"], ["cat"] * 5),
        (["train/cat/1", "train/dog/2"], ["cat"] * 5),
        (["cat/1"], ["cat"] * 5),
    ],
)
def test_a_folder_around_everything_counts_if_the_depth_needs_it(
    tmp_path: Path, members: list[str], named: list[str]
) -> None:
    (tmp_path / "a.zip").write_bytes(zip_of({f"{path}.jpg": JPEG for path in members}))
    found = [by_key(list_refs(tmp_path / "a.zip", label_depth=depth)) for depth in DEPTHS]
    assert [refs[f"a.zip!{members[0]}.jpg"].label for refs in found] == named


@pytest.mark.parametrize(
    ("depth", "named"),
    [
        ("1", "animals"),
        ("2", "animals/cat"),
        ("3", "animals/cat/old"),
        ("all", "animals/cat/old"),
        ("last", "old"),
    ],
)
@pytest.mark.parametrize("top", ["", "train/"])
def test_archives_in_class_folders_give_class_names(tmp_path: Path, depth: str, named: str, top: str) -> None:
    folder = tmp_path / "in" / top / "animals"
    folder.mkdir(parents=True)
    (folder / "a.zip").write_bytes(zip_of({"cat/old/1.jpg": JPEG, "cat/2.jpg": JPEG}))
    (folder / "b.tar").write_bytes(tar_of({"dog/3.jpg": JPEG}))
    write_tree(folder, {"cat/old/4.jpg": None})
    found = by_key(list_refs(tmp_path / "in", label_depth=depth))
    for key in ("animals/a.zip!cat/old/1.jpg", "animals/cat/old/4.jpg"):
        assert (found[top + key].label, found[top + key].split) == (named, top.rstrip("/"))


@given(st.lists(st.text("ab.%", min_size=1, max_size=3), max_size=6), st.integers(1, 999))
def test_a_class_name_consists_of_the_first_folders(folders: list[str], depth: int) -> None:
    key = "/".join([*folders, "x.jpg"])
    classes, splits = FolderTree(), FolderTree({"train": "train", "Val": "val"})
    assert classes.place(key, depth) == ("", "/".join(folders[:depth]))
    assert classes.place(key, units.ALL_FOLDERS) == ("", "/".join(folders))
    assert classes.place(key, units.LAST_FOLDER) == ("", folders[-1] if folders else "")
    assert splits.place(f"Val/{key}", depth) == ("val", "/".join(folders[:depth]))
    assert splits.place(key, depth) == ("train", "")


def test_names_of_several_folders_reach_the_records(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "in", {path: None for path in TREE if path != "5.jpg"})
    made = convert(input=str(source), output=str(tmp_path / "out"), label_depth=2)
    assert made.dataset.labels == ("animals", "animals/cat", "plants/a")
    assert (tmp_path / "out" / "labels.txt").read_text() == "0:animals\n1:animals/cat\n2:plants/a\n"
    found = {}
    for name in shard_hashes(tmp_path / "out"):
        with (tmp_path / "out" / name).open("rb") as file:
            for record in read_records(file):
                features = parse_example(record.data)
                (key,), (label,) = features["image/filename"].values, features["image/class/text"].values
                found[key.decode()] = (label.decode(), features["image/class/label"].values[0])
    assert found == {
        "animals/3.jpg": ("animals", 0), "animals/cat/1.jpg": ("animals/cat", 1),
        "animals/cat/old/2.jpg": ("animals/cat", 1), "plants/a/b/c/4.jpg": ("plants/a", 2),
    }  # fmt: skip
    assert json.loads((tmp_path / "out" / "dataset.json").read_text())["settings"]["label_depth"] == "2"
    again = convert(input=str(source), output=str(tmp_path / "again"), plan_from=str(tmp_path / "out"))
    assert shard_hashes(tmp_path / "again") == shard_hashes(tmp_path / "out")
    assert again.dataset.labels == made.dataset.labels


@pytest.mark.parametrize("depth", ["0", "-1", "1.5", "every", "", "01", "1000", "2 3", "²"])
def test_wrong_depths_are_refused(tmp_path: Path, depth: str) -> None:
    with pytest.raises(UsageError, match="is not a number of folders"):
        convert(input=str(PHOTOS), output=str(tmp_path / "out"), label_depth=depth)


def test_the_setting_is_refused_if_folders_name_no_classes(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("path,label\nfruit/apple.jpg,a\n")
    output = str(tmp_path / "out")
    with pytest.raises(UsageError, match="is read as manifest, where folders do not name the classes"):
        convert(input=str(rows), image_root=str(PHOTOS), output=output, label_depth="last")
    with pytest.raises(UsageError, match="--label_regex from whole paths; leave one of them out"):
        convert(input=str(PHOTOS), output=output, label_depth=2, label_regex="(?P<label>[a-z]+)")
    convert(input=str(rows), image_root=str(PHOTOS), output=output, label_depth=1)
