"""Metadata files and tables beside images, on a disk and in archives."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers.depths import compared, findings_of
from helpers.listing import listed, put_photos
from helpers.manifests import PICTURES, ROWS, write_csv, write_jsonl
from helpers.packing import by_key, list_refs, tar_of, tree_members, zip_of
from helpers.records import examples, value
from helpers.repository import PHOTOS
from helpers.trees import put_files
from hypothesis import given
from hypothesis import strategies as st

from shardwright.core.sources import input_probe as probe
from shardwright.core.sources.files_beside import every_image_has_metadata, stem_of, without_metadata
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.schemas.errors import UsageError
from shardwright.schemas.labels import ClassId

IMAGES = [PHOTOS / "fruit" / "apple.jpg", *sorted((PHOTOS / "birds").glob("*.jpg"))[:3]]


def img2dataset(root: Path, **fields: Any) -> Path:
    """Writes the output of img2dataset with `--output_format files`, except the content of its Parquet file.

    Args:
      root: folder to write to.
      **fields: additional fields of the JSON; each is a list with a value per image.
    """
    for number, image in enumerate(IMAGES):
        shard = f"{number // 2:05d}"
        folder = root / shard
        folder.mkdir(parents=True, exist_ok=True)
        key = f"{shard}{number % 2:04d}"
        (folder / f"{key}.jpg").write_bytes(image.read_bytes())
        (folder / f"{key}.txt").write_text(f"a picture of {image.stem}")
        metadata = {
            "caption": f"a picture of {image.stem}", "url": f"https://example.com/{image.name}", "key": key,
            "status": "success", "error_message": None, "width": 256, "height": 200 + number,
            **{name: values[number] for name, values in fields.items()},
        }  # fmt: skip
        (folder / f"{key}.json").write_text(json.dumps(metadata, indent=4))
        (root / f"{shard}_stats.json").write_text('{"count": 2, "successes": 2}')
        (root / f"{shard}.parquet").write_bytes(b"PAR1 and so on")
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


def packed(folder: Path, form: str) -> tuple[Path, str, str]:
    """Returns a folder, or a zip or tar of it; its source, and the beginning of its keys."""
    if form == "disk":
        return folder, "class_folders", ""
    path = folder.parent / f"x.{form}"
    path.write_bytes((zip_of if form == "zip" else tar_of)(tree_members(folder)))
    return path, "archives", f"x.{form}!"


@pytest.mark.parametrize("form", ["disk", "zip", "tar"])
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


def put(root: Path, **files: str | None) -> Path:
    """Writes `FOLDER__NAME=TEXT`, or a photo if there is no text; `_jpg` and similar become extensions."""
    paths = {name: name.replace("__", "/").replace("_", ".") for name in files}
    photo = IMAGES[0].read_bytes()
    return put_files(root, {paths[name]: text.encode() if text else photo for name, text in files.items()})


def test_the_class_of_a_folder_takes_precedence(tmp_path: Path) -> None:
    """Metadata adds columns; it gives the class only with `--label_column`."""
    source = put(
        tmp_path / "in", cat__1_jpg=None, cat__1_json='{"label": "dog", "price": 1.5, "kind": "tom"}',
        cow__2_jpg=None, cow__2_json='{"price": 2, "kind": "bull"}',
    )  # fmt: skip
    for column, labels in ({"extra_columns": "price:float"}, ("cat", "cow")), (
        {"label_column": "kind"}, ("tom", "bull")
    ):  # fmt: skip
        found = by_key(list_refs(source, "class_folders", **column))
        assert {key: ref.label for key, ref in found.items()} == dict(zip(("cat/1.jpg", "cow/2.jpg"), labels))


def test_metadata_is_used_only_if_every_image_has_some(tmp_path: Path) -> None:
    source = put(tmp_path / "in", cat__1_jpg=None, cat__1_json='{"price": 1}', cow__2_jpg=None)
    assert set(by_key(list_refs(source, "class_folders"))) == {"cat/1.jpg", "cat/1.json", "cow/2.jpg"}
    for form in ("disk", "zip"):
        path, _, _ = packed(source, form)
        with pytest.raises(UsageError, match=r"no columns unless a \.json lies beside every image"):
            convert(input=path, output=tmp_path / "out", extra_columns="price:float")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["disk", "zip"])
def test_bad_metadata_is_a_fault_only_if_it_is_needed(tmp_path: Path, form: str) -> None:
    source = put(
        tmp_path / "in", cat__1_jpg=None, cat__1_json='{"price": 1}', cow__2_jpg=None, cow__2_json="{oops",
        emu__3_jpg=None, emu__3_txt="a bird",
    )  # fmt: skip
    source, name, prefix = packed(source, form)
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
    for name in ("a/1", "b/2"):
        (tmp_path / name).parent.mkdir()
        shutil.copy(PHOTOS / PICTURES[0], tmp_path / f"{name}.jpg")
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
    (tmp_path / table).parent.mkdir(exist_ok=True)
    (tmp_path / table).write_text(text)
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
