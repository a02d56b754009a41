"""The meaning of folders, on a disk and in archives: classes of one or several folders, splits or none."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.listing import listed, refusal
from helpers.packing import by_key, list_refs, tar_of, zip_of
from helpers.records import by_key as records_by_key
from helpers.records import value
from helpers.repository import PHOTOS
from helpers.trees import put_files
from hypothesis import given
from hypothesis import strategies as st

from shardwright.core.sources.folder_tree import FolderTree, is_shard_number, split_of_folder
from shardwright.core.sources.inputs import check_inputs
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.schemas import units
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError

Capture = pytest.CaptureFixture[str]

JPEG = (PHOTOS / "fruit" / "apple.jpg").read_bytes()
SPLITS = ("train/cat/1.jpg", "train/dog/2.jpg", "validation/cat/3.jpg")
FLAT = ("train/1.jpg", "train/2.jpg", "val/3.jpg")
SHARDS = ("00000/000000000.jpg", "00000/000000001.jpg", "00001/000010000.jpg")


def write_files(root: Path, paths: Iterable[str]) -> Path:
    """Writes a photo under each path, or text if the name is not that of an image."""
    return put_files(root, {path: data_of(path) for path in paths})


def data_of(path: str) -> bytes:
    return JPEG if path.endswith((".jpg", ".JPG", "image")) else b"some text\n"


def classes(found: list[Any], prefix: str = "") -> dict[str, tuple[str, str]]:
    """Returns key -> (split, class) of the candidates."""
    refs = by_key(found).items()
    return {key.removeprefix(prefix): (ref.split, ref.label) for key, ref in refs if ref.is_candidate}


def places(root: Path, form: str, paths: Iterable[str], **settings: Any) -> dict[str, tuple[str, str]]:
    """Returns path -> (split, class) of the candidates of a tree, on a disk or packed."""
    if form == "disk":
        return classes(list_refs(write_files(root / "in", paths), "class_folders", **settings))
    root.mkdir(exist_ok=True)
    file = root / f"in.{form}"
    file.write_bytes((zip_of if form == "zip" else tar_of)({path: data_of(path) for path in paths}))
    return classes(list_refs(file, **settings), f"in.{form}!")


FORMS = pytest.mark.parametrize("form", ["disk", "zip", "tar"])


@FORMS
@pytest.mark.parametrize(
    ("paths", "without_images"),
    [
        (SPLITS, ["docs/readme.txt"]),
        (SPLITS, ["docs/LICENSE"]),  # its name does not show that it is not an image
        (SPLITS, ["__MACOSX/train/._1.jpg"]),
        (SPLITS, [".ipynb_checkpoints/1.jpg"]),
        (SPLITS, ["unlabelled/.keep", "b/c/notes.md"]),
        (SPLITS, ["a.csv"]),
        (["Train/cat/1.jpg", "TEST/cat/2.jpg", "Valid/dog/3.jpg"], []),
        # Digits as classes, as in MNIST, and a number like a shard's beside other names.
        (["0/1.jpg", "1/2.jpg", "cat/3.jpg", "trains/4.jpg", "00000/5.jpg"], []),
        (["cat/1.jpg", "dog/2.jpg"], ["test/readme.txt"]),
    ],
)
def test_folders_with_images_are_splits_or_classes(
    tmp_path: Path, form: str, paths: list[str], without_images: list[str]
) -> None:
    """Folders without images do not matter, and neither does the case of a split's name."""
    folders = {path: path.split("/")[:-1] for path in paths}
    assert places(tmp_path, form, [*paths, *without_images]) == {
        path: (names[0].lower(), names[1]) if len(names) == 2 else ("", names[0])
        for path, names in folders.items()
    }


@pytest.mark.parametrize(
    "name", ["train", "val", "valid", "dev", "eval", "testing", "training", "evaluation"]
)
def test_spellings_of_splits_are_recognized(name: str) -> None:
    for spelling in (name, name.upper(), name.title()):
        assert split_of_folder(spelling) == name
        assert split_of_folder(f"{spelling}_set") == split_of_folder(f"{spelling} Set") == f"{name}_set"
    assert not split_of_folder(f"{name}s") and not split_of_folder(f"my_{name}")


@FORMS
def test_images_are_also_found_by_content(tmp_path: Path, form: str) -> None:
    paths = ["train/cat/image", "test/cat/image", "docs/readme"]
    splits = {paths[0]: ("train", "cat"), paths[1]: ("test", "cat")}
    assert places(tmp_path, form, paths) == splits
    assert places(tmp_path, form, [*paths, "image"]) == {**splits, "image": ("train", "")}
    with pytest.raises(UsageError, match="and other, which holds images too, is not"):
        places(tmp_path, form, [*paths, "other/image"])


@FORMS
@pytest.mark.parametrize(
    ("paths", "says"),
    [
        ([*SPLITS, "unlabelled/4.jpg"], "train and validation are named like splits, and unlabelled, which"),
        ([*SPLITS, "extra/cat/4.jpg"], "and extra, which holds images too, is not"),
        (["cat/1.jpg", "test/2.jpg"], "test is named like a split, and cat, which holds"),
        ([*SPLITS, *SHARDS], "and 00000, which holds images too, is not"),
        (FLAT, "the images lie directly in train and val"),
        (["Train/1.jpg", "Test/2.jpg"], "the images lie directly in Train and Test"),
        (SHARDS, "the folders are named like shards (00000, ...)"),
        (["00012/a.jpg"], "the folders are named like shards (00012, ...)"),
    ],
)
def test_ambiguous_folders_are_refused(tmp_path: Path, form: str, paths: list[str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        places(tmp_path, form, paths)
    assert says in caught.value.message
    assert places(tmp_path, form, paths, folders="classes") == {
        path: ("", path.partition("/")[0]) for path in paths
    }
    assert places(tmp_path, form, paths, folders="ignore") == dict.fromkeys(paths, ("", ""))


@FORMS
def test_folders_can_be_declared_as_splits(tmp_path: Path, form: str) -> None:
    """With or without class folders inside; files outside are left out."""
    paths = [*SPLITS, "Test/4.jpg", "unlabelled/5.jpg", "6.jpg"]
    assert places(tmp_path, form, paths, folders="splits") == {
        "train/cat/1.jpg": ("train", "cat"),
        "train/dog/2.jpg": ("train", "dog"),
        "validation/cat/3.jpg": ("validation", "cat"),
        "Test/4.jpg": ("test", ""),
    }
    with pytest.raises(UsageError, match="has no folder that is named like a split"):
        places(tmp_path / "other", form, ["cat/1.jpg"], folders="splits")


def test_archives_in_split_folders_give_splits(tmp_path: Path) -> None:
    root = write_files(tmp_path / "in", ["docs/readme.txt", *(f"docs/{number}.txt" for number in range(20))])
    archive = zip_of({"cat/1.jpg": JPEG})
    put_files(root, dict.fromkeys(["Train/a.zip", "Test/a.zip", "more/b.zip"], archive))
    with pytest.raises(UsageError, match="and more, which holds images too, is not"):
        list_refs(root)
    shutil.rmtree(root / "more")
    found = classes(list_refs(root))
    assert found["Train/a.zip!cat/1.jpg"] == ("train", "cat")
    assert found["Test/a.zip!cat/1.jpg"] == ("test", "cat")


def test_a_folder_around_all_images_in_an_archive_is_ignored(tmp_path: Path) -> None:
    """Although a folder without images is beside it."""
    (tmp_path / "a.zip").write_bytes(zip_of({f"data/{path}": JPEG for path in SPLITS} | {"docs/x.md": b""}))
    found = classes(list_refs(tmp_path / "a.zip"))
    assert found["a.zip!data/train/cat/1.jpg"] == ("train", "cat")


def test_numbers_of_shards_are_recognized() -> None:
    names = ("00000", "00001", "012345", "0", "0001", "n01440764", "00000_a")
    assert [name for name in names if is_shard_number(name)] == ["00000", "00001", "012345"]


@pytest.mark.parametrize("paths", [FLAT, SHARDS, [*SPLITS, "unlabelled/4.jpg"]])
def test_both_options_in_the_message_work(tmp_path: Path, paths: list[str]) -> None:
    source = write_files(tmp_path / "in", paths)
    spellings = re.findall(r"--folders [a-z]+(?: --unlabelled keep)?", refusal(source))
    assert len(spellings) == 2 and "--folders classes" in spellings
    for spelling in spellings:
        settings = dict(re.findall(r"--(\w+) (\w+)", spelling))
        found = classes([*listed(source, "classification", **settings).refs.values()])
        assert found and ("unlabelled" in settings or all(label for _, label in found.values()))


@pytest.mark.parametrize(
    ("setting", "value", "default"), [("folders", "classes", "auto"), ("label_depth", "last", "1")]
)
def test_the_settings_are_refused_if_folders_name_no_classes(
    tmp_path: Path, setting: str, value: str, default: str
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("path,label\nfruit/apple.jpg,a\n")
    given = {"output": tmp_path / "out", setting: value}
    with pytest.raises(UsageError, match="is read as manifest, where folders do not name the classes"):
        convert(input=rows, image_root=PHOTOS, **given)
    with pytest.raises(
        UsageError, match=f"--{setting} {value} .* and --label_regex .*; leave one of them out"
    ):
        convert(input=PHOTOS, label_regex="(?P<label>.)", **given)
    assert not (tmp_path / "out").exists()
    settings = replace(ConvertSettings((str(rows),), image_root=str(PHOTOS)), **{setting: default})
    assert [item.source for item in check_inputs(settings, None)] == ["manifest"]


def test_plan_and_convert_print_the_detected_folders(tmp_path: Path, capsys: Capture) -> None:
    """Before the work: the tree, and what is left out."""
    source = write_files(
        tmp_path / "in", [*SPLITS, "Test/dog/4.jpg", "docs/x.txt", ".hidden", "train/cat/x.psd"]
    )
    tree = "3 splits x 2 classes, 4 images; left out: 2 files (1 dotfile, 1 not_an_image), 1 bad image"
    detected = f"{source}: class folders in train, validation and Test; no images in docs\n"
    argv = ["--input", str(source), "--max_bad_fraction", "0.5"]
    assert main(["convert", *argv, "--output", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().err.startswith(f"{detected}shardwright: found: {tree}\n")
    assert not (tmp_path / "out" / "_work" / "spool").exists()
    assert main(["plan", *argv[:2]]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"found: {tree}\n") and captured.err.startswith(detected)
    shutil.make_archive(str(tmp_path / "in"), "zip", source / "train")
    assert main(["plan", f"{source}.zip", "--splits", "train=0.5,test=0.5"]) == 0
    assert capsys.readouterr().out.startswith("found: 2 classes, 2 images; left out: 1 bad image\n")


DEPTHS = ("1", "2", "3", "all", "last")
#: Path -> its class at each of these depths.
TREE = {
    "animals/cat/1.jpg": ("animals", "animals/cat", "animals/cat", "animals/cat", "cat"),
    "animals/cat/old/2.jpg": ("animals", "animals/cat", "animals/cat/old", "animals/cat/old", "old"),
    "animals/3.jpg": ("animals",) * 5,
    "plants/a/b/c/4.jpg": ("plants", "plants/a", "plants/a/b", "plants/a/b/c", "c"),
    "5.jpg": ("",) * 5,
}


@pytest.mark.parametrize(("number", "depth"), enumerate(DEPTHS))
@pytest.mark.parametrize(
    ("form", "above"),
    [
        *itertools.product(["disk", "zip", "tar"], ["", "train/", "val/"]),
        *itertools.product(["zip", "tar"], ["data/", "data/train/"]),
    ],
)
def test_folders_give_class_names(tmp_path: Path, number: int, depth: str, form: str, above: str) -> None:
    """In an archive, a folder around everything that is not a split is ignored."""
    split = above.rstrip("/").removeprefix("data").lstrip("/")
    tree = {path: names for path, names in TREE.items() if path != "5.jpg" or form == "disk"}
    expected = {above + path: (split, names[number]) for path, names in tree.items()}
    assert places(tmp_path, form, expected, label_depth=depth) == expected


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


@pytest.mark.parametrize(("depth", "named"), zip(DEPTHS, TREE["animals/cat/old/2.jpg"]), ids=DEPTHS)
@pytest.mark.parametrize("top", ["", "train/"])
def test_archives_in_class_folders_give_class_names(tmp_path: Path, depth: str, named: str, top: str) -> None:
    files = {
        "a.zip": zip_of({"cat/old/1.jpg": JPEG, "cat/2.jpg": JPEG}),
        "b.tar": tar_of({"dog/3.jpg": JPEG}),
        "cat/old/4.jpg": JPEG,
    }
    put_files(tmp_path / "in" / top / "animals", files)
    found = classes(list_refs(tmp_path / "in", label_depth=depth))
    for key in ("animals/a.zip!cat/old/1.jpg", "animals/cat/old/4.jpg"):
        assert found[top + key] == (top.rstrip("/"), named)


@given(st.lists(st.text("ab.%", min_size=1, max_size=3), max_size=6), st.integers(1, 999))
def test_a_class_name_consists_of_the_first_folders(folders: list[str], depth: int) -> None:
    key = "/".join([*folders, "x.jpg"])
    classes, splits = FolderTree(), FolderTree({"train": "train", "Val": "val"})
    assert classes.place(key, depth) == ("", "/".join(folders[:depth]))
    assert classes.place(key, units.ALL_FOLDERS) == ("", "/".join(folders))
    assert classes.place(key, units.LAST_FOLDER) == ("", folders[-1] if folders else "")
    assert splits.place(f"Val/{key}", depth) == ("val", "/".join(folders[:depth]))
    assert splits.place(key, depth) == ("train", "")


def test_the_meaning_of_folders_reaches_the_records_and_is_carried_on(tmp_path: Path) -> None:
    splits = dict.fromkeys(["animals/cat/1.jpg", "animals/cat/old/2.jpg", "animals/3.jpg"], "train")
    splits["plants/a/b/c/4.jpg"] = "val"
    paths = [f"{split}/{path}" for path, split in splits.items()]
    source = write_files(tmp_path / "in", [*paths, "unlabelled/5.jpg", "docs/x.txt"])
    meaning = {"folders": "splits", "label_depth": "2"}
    made = convert(input=source, output=tmp_path / "out", resize=8, verify="none", **meaning)
    assert made.dataset.ledger["reasons"]["filtered"] == {"not_an_image": 1, "outside_splits": 1}
    assert set(made.dataset.splits) == {"train", "val"}
    assert made.dataset.labels == ("animals", "animals/cat", "plants/a")
    assert (tmp_path / "out" / "labels.txt").read_text() == "0:animals\n1:animals/cat\n2:plants/a\n"
    found = records_by_key(tmp_path / "out")
    classes = [[value(found[path], f"image/class/{name}") for name in ("text", "label")] for path in paths]
    assert classes == [["animals/cat", 1], ["animals/cat", 1], ["animals", 0], ["plants/a", 2]]
    stored = json.loads((tmp_path / "out" / "dataset.json").read_text())["settings"]
    assert {name: stored[name] for name in meaning} == meaning


@pytest.mark.parametrize("depth", ["0", "-1", "1.5", "every", "", "01", "1000", "2 3", "²"])
def test_wrong_depths_are_refused(tmp_path: Path, depth: str) -> None:
    with pytest.raises(UsageError, match="is not a number of folders"):
        convert(input=str(PHOTOS), output=str(tmp_path / "out"), label_depth=depth)
