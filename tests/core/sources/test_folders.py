"""The meaning of folders, on a disk and in archives, and of metadata and tables beside their images."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.depths import compared, findings_of
from helpers.listing import listed, put_photos, refusal
from helpers.manifests import ROWS, write_csv, write_jsonl
from helpers.packing import by_key, list_refs, tar_of, tree_members, zip_of
from helpers.records import by_key as records_by_key
from helpers.records import examples, value
from helpers.repository import PHOTOS
from helpers.trees import put_files
from hypothesis import given
from hypothesis import strategies as st

from shardwright.core.sources import input_probe as probe
from shardwright.core.sources.files_beside import every_image_has_metadata, stem_of, without_metadata
from shardwright.core.sources.folder_tree import FolderTree, is_shard_number, split_of_folder
from shardwright.core.sources.inputs import check_inputs
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.schemas import units
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.labels import ClassId

Capture = pytest.CaptureFixture[str]

JPEG = (PHOTOS / "fruit" / "apple.jpg").read_bytes()
SPLITS = ("train/cat/1.jpg", "train/dog/2.jpg", "validation/cat/3.jpg")
FLAT = ("train/1.jpg", "train/2.jpg", "val/3.jpg")
SHARDS = ("00000/000000000.jpg", "00000/000000001.jpg", "00001/000010000.jpg")


def write_files(root: Path, paths: Iterable[str]) -> Path:
    """Writes a photo under each path, or text if the name is not that of an image."""
    return put_files(root, {path: JPEG if path.endswith(("jpg", "image")) else "text" for path in paths})


def classes(found: list[Any], prefix: str = "") -> dict[str, tuple[str, str]]:
    """Returns key -> (split, class) of the candidates."""
    refs = by_key(found).items()
    return {key.removeprefix(prefix): (ref.split, ref.label) for key, ref in refs if ref.is_candidate}


def packed(folder: Path, form: str) -> tuple[Path, str, str]:
    """Returns a folder, or a zip or tar of it; its source, and the beginning of its keys."""
    if form == "disk":
        return folder, "class_folders", ""
    path = folder.parent / f"x.{form}"
    path.write_bytes((zip_of if form == "zip" else tar_of)(tree_members(folder)))
    return path, "archives", f"x.{form}!"


def places(root: Path, form: str, paths: Iterable[str], **settings: Any) -> dict[str, tuple[str, str]]:
    """Returns path -> (split, class) of the candidates of a tree, on a disk or packed."""
    path, source, prefix = packed(write_files(root / "in", paths), form)
    return classes(list_refs(path, source, **settings), prefix)


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
    pictures = {f"{path}.jpg": JPEG for path in members}
    (tmp_path / "a.zip").write_bytes(zip_of(pictures | {"docs/x.md": b"a folder without images"}))
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


IMAGES = [PHOTOS / "fruit" / "apple.jpg", *sorted((PHOTOS / "birds").glob("*.jpg"))[:3]]


def img2dataset(root: Path, **fields: Any) -> Path:
    """Writes the output of img2dataset with `--output_format files`, except the content of its Parquet file.

    Args:
      root: folder to write to.
      **fields: additional fields of the JSON; each is a list with a value per image.
    """
    for number, image in enumerate(IMAGES):
        shard = f"{number // 2:05d}"
        key = f"{shard}{number % 2:04d}"
        metadata = {
            "caption": f"a picture of {image.stem}", "url": f"https://example.com/{image.name}", "key": key,
            "status": "success", "error_message": None, "width": 256, "height": 200 + number,
            **{name: values[number] for name, values in fields.items()},
        }  # fmt: skip
        files = {
            f"{shard}/{key}.jpg": image.read_bytes(), f"{shard}/{key}.txt": f"a picture of {image.stem}",
            f"{shard}/{key}.json": json.dumps(metadata, indent=4),
            f"{shard}_stats.json": '{"count": 2, "successes": 2}', f"{shard}.parquet": b"PAR1 and so on",
        }  # fmt: skip
        put_files(root, files)
    return root


def labels(path: Path, **settings: Any) -> dict[str, str]:
    """Returns the name of each image below a folder, or that a table names -> its class."""
    refs = listed(path, "classification", **settings).refs
    return {Path(key).name: ref.label for key, ref in refs.items() if ref.is_candidate}


def test_the_files_output_of_img2dataset_is_read(tmp_path: Path) -> None:
    source = img2dataset(tmp_path / "in")
    message = r"none of its 4 images has a class.*--folders classes.*--unlabelled keep"
    with pytest.raises(UsageError, match=message):
        convert(input=source, output=tmp_path / "no")
    settings = {"unlabelled": "keep", "extra_columns": "url:string,height:int64", "resize": 16}
    made = convert(input=source, output=tmp_path / "out", verify="none", **settings)
    ledger = made.dataset.ledger
    assert made.dataset.labels == () and (ledger["listed"], ledger["written"]) == (8, 4)
    assert ledger["reasons"]["filtered"] == {"not_an_image": 4}
    (records,) = examples(tmp_path / "out").values()
    assert sorted(value(record, "height") for record in records) == [200, 201, 202, 203]
    assert {value(record, "url").partition("m/")[0] for record in records} == {"https://example.co"}
    assert not findings_of(tmp_path / "out") and not compared(tmp_path / "out", source)
    assert {*labels(source, folders="classes").values()} == {"00000", "00001"}


@FORMS
@pytest.mark.parametrize(
    ("fields", "settings", "labels", "ids"),
    [
        ({"label": ["b", "a", "b", "b"]}, {}, ["b", "a", "b", "b"], set()),
        ({"label": [7, 7, 3, 0]}, {}, ["7", "7", "3", "0"], {("7", 7), ("3", 3), ("0", 0)}),
        ({"kind": ["x", "y", "y", "x"]}, {"label_column": "kind"}, ["x", "y", "y", "x"], set()),
    ],
)
def test_metadata_can_give_the_class(
    tmp_path: Path, form: str, fields: dict[str, Any], settings: dict[str, str], labels: list[str], ids: Any
) -> None:
    source, name, prefix = packed(img2dataset(tmp_path / "in", **fields), form)
    found = list_refs(source, name, extra_columns="caption:string", **settings)
    refs = {key.removeprefix(prefix): ref for key, ref in by_key(found).items() if ref.is_candidate}
    keys = ["00000/000000000.jpg", "00000/000000001.jpg", "00001/000010000.jpg", "00001/000010001.jpg"]
    assert [refs[key].label for key in keys] == labels and len(refs) == 4
    assert "a picture of apple" in refs[keys[0]].extra and not refs[keys[0]].split
    assert {(one.name, one.id) for one in found if isinstance(one, ClassId)} == ids
    others = {key.removeprefix(prefix) for key, ref in by_key(found).items() if not ref.is_candidate}
    assert others == {"00000_stats.json", "00001_stats.json", "00000.parquet", "00001.parquet"}


def test_the_class_of_a_folder_takes_precedence(tmp_path: Path) -> None:
    """Metadata adds columns; it gives the class only with `--label_column`."""
    files = {
        "cat/1.jpg": JPEG, "cat/1.json": '{"label": "dog", "price": 1.5, "kind": "tom"}',
        "cow/2.jpg": JPEG, "cow/2.json": '{"price": 2, "kind": "bull"}',
    }  # fmt: skip
    source = put_files(tmp_path / "in", files)
    for column, labels in ({"extra_columns": "price:float"}, ("cat", "cow")), (
        {"label_column": "kind"}, ("tom", "bull")
    ):  # fmt: skip
        found = by_key(list_refs(source, "class_folders", **column))
        assert {key: ref.label for key, ref in found.items()} == dict(zip(("cat/1.jpg", "cow/2.jpg"), labels))


def test_metadata_is_used_only_if_every_image_has_some(tmp_path: Path) -> None:
    files = {"cat/1.jpg": JPEG, "cat/1.json": '{"price": 1}', "cow/2.jpg": JPEG}
    source = put_files(tmp_path / "in", files)
    assert set(by_key(list_refs(source, "class_folders"))) == {"cat/1.jpg", "cat/1.json", "cow/2.jpg"}
    for form in ("disk", "zip"):
        path, _, _ = packed(source, form)
        with pytest.raises(UsageError, match=r"no columns unless a \.json lies beside every image"):
            convert(input=path, output=tmp_path / "out", extra_columns="price:float")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["disk", "zip"])
def test_bad_metadata_is_a_fault_only_if_it_is_needed(tmp_path: Path, form: str) -> None:
    files = {
        "cat/1.jpg": JPEG, "cat/1.json": '{"price": 1}', "cow/2.jpg": JPEG, "cow/2.json": "{oops",
        "emu/3.jpg": JPEG, "emu/3.txt": "a bird",
    }  # fmt: skip
    source, name, prefix = packed(put_files(tmp_path / "in", files), form)
    plain = by_key(list_refs(source, name))
    assert len(plain) == 3 and all(ref.is_candidate for ref in plain.values())
    found = by_key(list_refs(source, name, extra_columns="price:float"))
    faults = {key.removeprefix(prefix): (ref.reason, ref.message) for key, ref in found.items()}
    assert faults == {
        "cat/1.jpg": ("", ""),
        "cow/2.jpg": ("BAD_ANNOTATION", "its .json file is not JSON"),
        "emu/3.jpg": ("BAD_ANNOTATION", "its .json lacks a value or has a wrong one: price is empty"),
    }


def test_changed_metadata_changes_the_reference(tmp_path: Path) -> None:
    """So a rebuild writes the record of the image again."""
    source = img2dataset(tmp_path / "in", label=["b", "a", "b", "b"])
    before = by_key(list_refs(source, "class_folders"))
    assert by_key(list_refs(source, "class_folders")) == before
    path = source / "00001" / "000010001.json"
    path.write_text(path.read_text().replace('"label": "b"', '"label": "a"'))
    key = "00001/000010001.jpg"
    assert by_key(list_refs(source, "class_folders")) == before | {key: before[key]._replace(label="a")}


NAMES = st.lists(
    st.builds(
        "{}{}.{}".format,
        st.sampled_from(["", "a/", "a.b/", ".c/"]),
        st.sampled_from(["1", "1.x", "1-2"]),
        st.sampled_from(["jpg", "png", "json", "txt", "md"]),
    ),
    max_size=8, unique=True,
)  # fmt: skip


@given(NAMES)
def test_groups_of_sorted_paths_contain_images_and_their_metadata(paths: list[str]) -> None:
    """Compared with a grouping of all paths at once."""
    images = {stem_of(path) for path in paths if path.endswith(("jpg", "png"))}
    shown = {stem_of(path) for path in paths if path.endswith(("jpg", "png")) and not path.startswith(".")}
    metadata = {stem_of(path) for path in paths if path.endswith(("json", "txt"))}
    assert every_image_has_metadata(sorted(paths)) == (bool(shown) and shown <= metadata)
    left = [p for p in sorted(paths) if not (p.endswith(("json", "txt")) and stem_of(p) in images)]
    assert list(without_metadata(sorted(paths), str)) == left


def test_metadata_beside_many_images_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(Path(path).name, label) for path, label in ROWS]
    for path, _ in ROWS:
        shutil.copy(PHOTOS / path, tmp_path / Path(path).name)
    write_jsonl(tmp_path / "metadata.jsonl", [{"file_name": name, "label": label} for name, label in rows])
    monkeypatch.setattr(probe, "IMAGES", 3)
    assert labels(tmp_path) == dict(rows)


@pytest.mark.parametrize("rows", [
    [("file_name", "text"), ("a/1.jpg", "no class")],
    [("file_name", "label"), ("elsewhere.jpg", "b")],
    [("file_name", "label"), ("a/1.jpg", "b")],
    [("width", "height"), (1, 2)],
])  # fmt: skip
def test_class_folders_with_other_csv_files_are_not_manifests(
    tmp_path: Path, rows: list[tuple[str, str]]
) -> None:
    put_files(tmp_path, {"a/1.jpg": JPEG, "b/2.jpg": JPEG})
    write_csv(tmp_path / "metadata.csv", rows)
    assert labels(tmp_path) == {"1.jpg": "a", "2.jpg": "b"}


_ROWS = "filename,label\neagle.jpg,bird\napple.jpg,fruit\n"
_BOX = "filename,class,xmin,ymin,xmax,ymax\neagle.jpg,bird,1,1,9,9\n"


@pytest.mark.parametrize(
    ("images", "table", "text"),
    [
        ("", "ann.csv", _ROWS),
        ("images", "ann.csv", _ROWS.replace(",", ";")),
        ("Img/img_align", "Anno/attributes.csv", _ROWS.replace("filename,label", "image_id,Kind")),
        ("images", "ann.jsonl", '{"image": "images/eagle.jpg", "label": "bird"}\n'
         '{"image": "images/apple.jpg", "label": "fruit"}'),
        ("train", "ann.tsv", "eagle.jpg\tbird\napple.jpg\tfruit\n"),
    ],
)  # fmt: skip
def test_the_message_says_how_to_read_the_table(tmp_path: Path, images: str, table: str, text: str) -> None:
    put_photos(tmp_path / images, ["eagle", "apple"])
    put_files(tmp_path, {table: text})
    pattern = r"names its images, .*; write --(.*?), or --source class_folders if it is to be"
    with pytest.raises(UsageError, match=pattern) as refused:
        labels(tmp_path)
    options = re.search(pattern, refused.value.message)
    assert options
    settings = dict(option.split() for option in options[1].replace("COLUMN (Kind)", "Kind").split(" --"))
    assert labels(Path(settings.pop("input")), **settings) == {"eagle.jpg": "bird", "apple.jpg": "fruit"}


def test_several_tables_are_all_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, output = tmp_path / "in", tmp_path / "out"
    put_photos(root / "images", ["eagle", "apple"])
    for name in ("ann.csv", "ann2.csv", "ann3.csv"):
        (root / name).write_text(_ROWS)
    (root / "notes.csv").write_text("day,weather\n1,sun\n")
    assert main(["convert", "--input", str(root), "--output", str(output)]) == 2
    error = capsys.readouterr().err
    for name in ("ann.csv", "ann2.csv", "ann3.csv"):
        assert f"--input {root / name} --image_root {root / 'images'}, or " in error
    assert "notes.csv" not in error and not output.exists()
    found = listed(root, "classification", source="class_folders")
    assert [*found.reasons().values()] == ["not_an_image"] * 4 and len(found.refs) == 6


def test_class_folders_with_a_table_are_class_folders(tmp_path: Path) -> None:
    for split, name in itertools.product(("train", "test"), ("eagle", "apple")):
        put_photos(tmp_path / split / name, [name])
    (tmp_path / "birds.csv").write_text("path,label\ntrain/eagle/eagle.jpg,bird\n")
    refs = listed(tmp_path, "classification").refs.values()
    assert Counter(ref.label for ref in refs if ref.is_candidate) == {"eagle": 2, "apple": 2}


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (dict.fromkeys(("ann.csv", "ann2.csv"), _BOX), ("(line 2 of ann.csv)", "(line 2 of ann2.csv)")),
        (
            {"metadata.csv": _ROWS, "metadata.jsonl": '{"filename": "eagle.jpg", "label": "owl"}\n'},
            ("write --input {0}/metadata.csv or --input {0}/metadata.jsonl.",),
        ),
    ],
)
def test_two_files_about_one_image_are_refused(
    tmp_path: Path, texts: dict[str, str], says: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "in"
    put_photos(root, ["eagle", "apple"])
    for name, text in texts.items():
        (root / name).write_text(text.replace("filename", "file_name"))
    layout = "detection" if "ann.csv" in texts else "classification"
    args = ["--input", str(root), "--output", str(tmp_path / "out"), "--layout", layout]
    assert main(["convert", *args]) == 2
    error = capsys.readouterr().err
    assert all(part.format(root) in error for part in says), error
