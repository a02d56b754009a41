"""Manifests end to end: rows become records or faults; which files are manifests, and refusals."""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from helpers.embedded import refs_of
from helpers.hostile import check_books
from helpers.listing import listed as listed_by_any
from helpers.listing import look_at
from helpers.manifests import PICTURES, ROWS, described, listed, write_csv, write_jsonl, write_parquet
from helpers.records import examples, quarantine, value
from helpers.repository import PHOTOS
from helpers.trees import put_files

from shardwright.core.images.read import read_image
from shardwright.core.sources import manifest
from shardwright.core.sources.inputs import check_inputs
from shardwright.core.sources.source import Context, Input
from shardwright.core.sources.spool import Spool
from shardwright.pipelines.convert import convert
from shardwright.pipelines.results import ConvertResult
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, UsageError

ROOT = str(PHOTOS)


def made(path: Path, **given: Any) -> ConvertResult:
    """Converts a manifest of the example pictures to `out`."""
    small = {"resize": 16, "max_bad_fraction": 1.0, "verify": "none"}
    return convert(input=path, output=path.parent / "out", image_root=PHOTOS, **small, **given)


@pytest.mark.parametrize(
    "header", [("Image Path", "Class", "Split"), ("imagepath", "CLASS-NAME", "DataSplit")]
)
def test_a_csv_gives_classes_and_splits(tmp_path: Path, header: tuple[str, str, str]) -> None:
    splits = ["train", "Validation", "TEST"]
    rows = [(path, name, splits[i % 3], "ignored") for i, (path, name) in enumerate(ROWS)]
    file = write_csv(tmp_path / "rows.csv", [(*header, "note"), *rows])
    columns = "images in {!r}, classes in {!r}, splits in {!r}".format(*header)
    assert described(file, image_root=ROOT) == f"a CSV manifest with a header: {columns}"
    assert [(ref.key, ref.label, ref.split) for ref in listed(file, image_root=ROOT)] == [
        (path, name, split.lower()) for path, name, split, _ in rows
    ]


def test_all_formats_and_a_folder_give_the_same_images(tmp_path: Path) -> None:
    folder = put_files(tmp_path / "many", {"part-2.csv": "", "_SUCCESS": ""})
    flat = tmp_path / "flat"
    header, rows = ("path", "label"), ROWS[::2]
    files = [
        write_csv(tmp_path / "a.csv", [header, *rows]),
        write_csv(tmp_path / "b.TSV", [header, *rows], delimiter="\t"),
        write_csv(tmp_path / "c.csv", [header, *rows[::-1]], delimiter=";", quoting=csv.QUOTE_ALL),
        write_csv(tmp_path / "d.csv", [header, *rows], encoding="utf-8-sig", lineterminator="\r"),
        write_jsonl(tmp_path / "e.jsonl", [dict(zip(header, row)) for row in rows]),
        write_parquet(
            tmp_path / "f.parquet", 3, path=[r[0] for r in rows], label=pyarrow.array(
                [r[1] for r in rows]).dictionary_encode(),
        ),
        folder,
    ]  # fmt: skip
    write_csv(folder / "part-0.csv", [header, *rows[:3]])
    write_csv(folder / "part-1.csv", [("label", "path"), *(row[::-1] for row in rows[3:])])
    expected = {ref._replace(message="") for ref in listed(files[0], image_root=ROOT)}
    assert len(expected) == len(rows)
    for file in files:
        assert {ref._replace(message="") for ref in listed(file, image_root=ROOT)} == expected, file
    for path, name in rows:
        (flat / name).mkdir(parents=True, exist_ok=True)
        shutil.copy2(PHOTOS / path, flat / path)
    folders = listed_by_any(flat, "classification").refs.values()
    assert {ref._replace(uri=ref.uri.replace(str(flat), ROOT)) for ref in folders} == expected


def test_automl_rows_without_header_are_read(tmp_path: Path) -> None:
    rows = ["TRAIN,{0}/{1},a", "VALIDATE,{0}/{1},b", "test,{1},a,b,", "UNASSIGNED,{1},b|c", "{1},a", "{1}"]
    text = "".join(row.format(PHOTOS, path) + "\n" for row, path in zip(rows, PICTURES))
    (tmp_path / "x.csv").write_text(text)
    what = described(tmp_path / "x.csv", image_root=ROOT)
    assert what == "a CSV manifest without a header: [split,] image, class"
    refs = listed(tmp_path / "x.csv", label_separator="|", image_root=ROOT)
    assert [ref.key for ref in refs] == PICTURES[:6]
    assert [ref.split for ref in refs] == ["train", "validation", "test", "", "", ""]
    assert [ref.labels for ref in refs] == [("a",), ("b",), ("a", "b"), ("b", "c"), ("a",), ()]
    assert refs[5].message == "x.csv, line 6 has no class"


def test_wrong_rows_are_reported_and_counted(tmp_path: Path) -> None:
    sha256 = hashlib.sha256((PHOTOS / PICTURES[0]).read_bytes()).hexdigest()
    web = "http://example.org/1.jpg"
    rows = [
        ("path", "label", "split", "sha256", "price"),
        (PICTURES[0], "a", "train", sha256.upper(), "1.5"),  # line 2
        ("no\nsuch.jpg", "a", "train", "", "1"),  # 3 and 4
        (PICTURES[1], "a", "train", "0" * 64, "1"),
        ("", "a", "train", "", "1"),  # 6
        (web, "a", "train", "", "1"),
        (PICTURES[2], "a", "no split!", "", "1"),  # 8
        (PICTURES[3], "a", "none", "", "1"),
        (PICTURES[4], "a", "train", "123", "1"),  # 10
        (PICTURES[5], "a", "train", "", "cheap"),
        (PICTURES[6], "a"),  # 12
        (PICTURES[6], "a", "train", "", "1", "more"),
        (PICTURES[7], "", "train", "", "1"),  # 14
        ("fruit", "a", "train", "", "1"),
        (PICTURES[8], "a\x1fb", "train", "", "1"),  # 16
    ]
    file = write_csv(tmp_path / "rows.csv", rows)
    with file.open("ab") as more:
        more.write(b"\r\n\r\n" + os.fsencode(PICTURES[9]) + b",caf\xe9,train,,1\r\n")  # 19
    result = made(file, extra_columns="price:float")
    assert 0 < result.run["convert_seconds"] <= result.run["seconds"]  # the ledger of bad rows has no times
    check_books(tmp_path / "out")
    found = {key: (entry["reason"], entry["message"]) for key, entry in quarantine(tmp_path / "out").items()}
    line = "rows.csv, line {}: {}".format
    missing = f"'{PHOTOS}/no\\nsuch.jpg': no such file or directory"
    several = "'{}' cannot be a split's name; use letters, digits and _".format
    assert found.pop(PICTURES[1])[0] == "CHECKSUM_MISMATCH"
    assert found == {
        "no\nsuch.jpg": ("UNREADABLE", line(3, missing)),
        "rows.csv:6": ("BAD_ROW", line(6, "it names no image")),
        "rows.csv:7": ("BAD_ROW", line(7, f"there is no storage for http://, as in {web!r}")),
        PICTURES[2]: ("BAD_ROW", line(8, several("no split!"))),
        PICTURES[3]: ("BAD_ROW", line(9, several("none"))),
        PICTURES[4]: ("BAD_ROW", line(10, "its sha256 is not 64 hexadecimal digits but '123'")),
        PICTURES[5]: ("BAD_ROW", line(11, "price: 'cheap' is not a valid float")),
        "rows.csv:12": ("BAD_ROW", line(12, "it has too few cells: 2 instead of 5")),
        "rows.csv:13": ("BAD_ROW", line(13, "it has too many cells: 6 instead of 5")),
        PICTURES[7]: ("UNKNOWN_LABEL", "rows.csv, line 14 has no class"),
        "fruit": ("UNREADABLE", line(15, f"'{PHOTOS}/fruit' is a folder")),
        PICTURES[8]: ("BAD_ROW", line(16, "its class holds the control character 0x1F")),
        PICTURES[9]: ("BAD_ROW", line(19, "its class is not UTF-8; save the file as UTF-8")),
    }
    assert result.dataset.ledger["splits"]["none"]["quarantined"] == 4
    assert [value(e, "price") for e in examples(tmp_path / "out")["train"]] == [1.5]


def test_an_image_in_two_rows_is_an_error_that_names_both(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "rows.csv", [("path", "label"), *ROWS, (f"{PHOTOS}/{PICTURES[1]}", "x")])
    with pytest.raises(UsageError) as error:
        made(file)
    assert "rows.csv, line 3" in error.value.message and "line 15" in error.value.message


def test_two_manifests_with_names_share_no_key(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "rows.csv", [("path", "label"), *ROWS[:2], ("only one cell",)])
    for name in "ab":
        refs, _ = refs_of(f"{name}={file}", tmp_path / "spool", image_root=ROOT)
        assert [ref.key for ref in refs] == [
            *(f"{name}/{path}" for path in PICTURES[:2]), f"{name}/rows.csv:4"
        ]  # fmt: skip


def test_numbers_of_splits_are_their_names_in_all_formats(tmp_path: Path) -> None:
    header = ("path", "label", "split")
    rows = [(path, name, number) for number, (path, name) in enumerate(ROWS[:3])]
    files = [
        write_csv(tmp_path / "a.csv", [header, *rows]),
        write_jsonl(tmp_path / "b.jsonl", [dict(zip(header, row)) for row in rows]),
        write_parquet(
            tmp_path / "c.parquet", 1, **{name: [*cells] for name, cells in zip(header, zip(*rows))}
        ),
    ]
    for file in files:
        assert [ref.split for ref in listed(file, image_root=ROOT)] == ["0", "1", "2"], file


def test_images_without_any_class_can_be_kept(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "rows.csv", [("path",), *((path,) for path in PICTURES)])
    refs = listed(file, unlabelled="keep", image_root=ROOT)
    assert [(ref.key, ref.label) for ref in refs] == [(path, "") for path in PICTURES]


def test_numbers_are_ids_with_gaps(tmp_path: Path) -> None:
    numbers = ["7", "2", "10"]
    rows = [(path, numbers[i % 3]) for i, path in enumerate(PICTURES)]
    as_int = write_jsonl(tmp_path / "i.jsonl", [{"path": path, "label": int(n)} for path, n in rows])
    for file in (write_csv(tmp_path / "i.csv", [("path", "label"), *rows]), as_int):
        assert [(ref.key, ref.label) for ref in listed(file, image_root=ROOT)] == rows
        assert refs_of(file, tmp_path / "spool")[1] == {"7": 7, "2": 2, "10": 10}


@pytest.mark.parametrize(("values", "names", "ids"), [
    (["007", "7"], ["007", "7"], [7]), (["-1", "1e1"], ["-1", "1e1"], []), ([7.0, None], ["7.0", ""], []),
    ([True], ["true"], []), (["3"] * 9, ["3"], [3]),
])  # fmt: skip
def test_texts_that_are_not_plain_numbers_are_names(
    tmp_path: Path, values: list[Any], names: list[str], ids: list[int]
) -> None:
    rows = [{"path": f"{i}.jpg", "label": value} for i, value in enumerate(values)]
    columns = {name: [row[name] for row in rows] for name in ("path", "label")}
    for file in (write_jsonl(tmp_path / "a.jsonl", rows), write_parquet(tmp_path / "a.parquet", **columns)):
        refs, found = refs_of(file, tmp_path / "spool")
        assert [*found.values()] == ids
        assert list(dict.fromkeys(ref.label for ref in refs)) == names


def test_an_image_has_several_classes_with_the_setting(tmp_path: Path) -> None:
    several = [["b", "a"], ["a"], ["c", "c", " a "], [], ["b|c"]]
    file = write_jsonl(tmp_path / "m.jsonl", [{"path": p, "labels": n} for p, n in zip(PICTURES, several)])
    refs = listed(file, label_separator="|", image_root=ROOT)
    assert [ref.labels for ref in refs] == [("b", "a"), ("a",), ("c", "a"), (), ("b|c",)]
    refs = listed(file, image_root=ROOT)
    assert [(ref.label, ref.reason) for ref in refs] == [
        ("", "BAD_ROW"), ("a", ""), ("", "BAD_ROW"), ("", ""), ("b|c", ""),
    ]  # fmt: skip
    assert "--label_separator" in refs[0].message


def test_groups_are_read(tmp_path: Path) -> None:
    """The images of a group share a split."""
    rows = [(path, name, i % 3) for i, (path, name) in enumerate(ROWS)]
    file = write_csv(tmp_path / "rows.csv", [("path", "label", "patient"), *rows])
    refs = listed(file, group_column="patient", image_root=ROOT)
    assert [(ref.key, ref.label, ref.group) for ref in refs] == [(p, name, f"{n}") for p, name, n in rows]


def test_file_names_that_are_not_utf8_are_read(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path / "in")
    os.mkdir(folder)
    shutil.copy(PHOTOS / PICTURES[0], folder + b"/caf\xe9.jpg")
    with open(folder + b"/rows.csv", "wb") as file:
        file.write(b"path,label\ncaf\xe9.jpg,a\n")
    (ref,) = listed(tmp_path / "in" / "rows.csv")
    assert (ref.key, ref.label) == ("caf%E9.jpg", "a")
    assert read_image(ref, 1 << 20) == (PHOTOS / PICTURES[0]).read_bytes()


def test_text_in_parquet_that_is_not_utf8_is_a_fault(tmp_path: Path) -> None:
    offsets, text = b"\0\0\0\0\x08\0\0\0\x0d\0\0\0", b"caf\xe9.jpgb.jpg"
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(text)]
    paths = pyarrow.Array.from_buffers(pyarrow.string(), 2, buffers)
    labels = pyarrow.array([b"a", b"\xff"])
    refs = listed(write_parquet(tmp_path / "a.parquet", path=paths, label=labels))
    assert {ref.key: ref.reason for ref in refs} == {"b.jpg": "BAD_ROW", "caf%E9.jpg": "UNREADABLE"}
    assert "row 2: its class is not UTF-8" in refs[0].message


def test_rows_of_vertex_are_read(tmp_path: Path) -> None:
    row = {
        "imageGcsUri": "gs://b/1.jpg",
        "classificationAnnotation": {"displayName": "cat"},
        "dataItemResourceLabels": {"aiplatform.googleapis.com/ml_use": "training"},
    }
    (ref,) = listed(write_jsonl(tmp_path / "v.jsonl", [row]))
    assert (ref.key, ref.uri, ref.label, ref.split) == ("b/1.jpg", "gs://b/1.jpg", "cat", "train")
    cells = ["TRAIN", "training", "VALIDATE", "validation", "TEST", "UNASSIGNED", ""]
    expected = ["train", "train", "validation", "validation", "test", "", ""]
    rows = [(cell, f"gs://b/{i}.jpg", "cat") for i, cell in enumerate(cells)]
    assert [ref.split for ref in listed(write_csv(tmp_path / "bare.csv", rows))] == expected
    header = ("ml_use", "path", "label")
    assert [ref.split for ref in listed(write_csv(tmp_path / "a.csv", [header, *rows]))] == expected
    verbatim = listed(write_csv(tmp_path / "b.csv", [("split", *header[1:]), *rows]))
    assert [ref.split for ref in verbatim][:2] == ["train", "training"]


def test_rows_of_empty_cells_count_as_blank_lines(tmp_path: Path) -> None:
    rows = [("path", "label", "", ""), ("gs://b/1.jpg", "cat", "", ""), ("", "x", "", "")]
    rows = [line for row in rows for line in (("", " ", "", ""), row)]
    refs = listed(write_csv(tmp_path / "a.csv", rows, delimiter=";", lineterminator="\r\n"))
    assert [(ref.key, ref.reason) for ref in refs] == [("b/1.jpg", ""), ("a.csv:6", "BAD_ROW")]


def test_paths_of_another_machine_are_found_by_name(tmp_path: Path) -> None:
    jpeg = (PHOTOS / PICTURES[0]).read_bytes()
    photos = put_files(tmp_path / "photos", dict.fromkeys(("a/1.jpg", "a/2.jpg", "b/2.jpg", "b/3.jpg"), jpeg))
    rows = [("image", "label"), ("C:\\old\\1.jpg", "x"), ("/home/ann/2.jpg", "y"), ("/home/ann/4.jpg", "y")]
    file = write_csv(tmp_path / "rows.csv", [*rows, ("b\\3.jpg", "x"), ("b/2.jpg", "y")])
    found = {ref.key: ref for ref in listed(file, image_root=str(photos))}
    assert {key for key, ref in found.items() if ref.is_candidate} == {"a/1.jpg", "b/3.jpg", "b/2.jpg"}
    assert found["a/1.jpg"].label == "x" and found["a/1.jpg"].size > 0
    assert found["a/1.jpg"].message == "rows.csv, line 2"
    twice, gone = found["home/ann/2.jpg"], found["home/ann/4.jpg"]
    assert twice.reason == gone.reason == "UNREADABLE"
    assert twice.message.startswith("rows.csv, line 3: ") and "mean a/2.jpg and b/2.jpg" in twice.message
    assert "no such file" in gone.message
    assert "image_root" not in described(file, image_root=str(photos))


def test_a_text_file_is_a_manifest_if_it_looks_like_one(tmp_path: Path) -> None:
    for name, text, taken in (
        ("a.txt", "TRAIN,gs://b/1.jpg,cat\n", True),
        ("list", "cats/1.jpg,cat\ncats/2.jpg,cat", True),
        ("b.txt", "Dear reader,\nthese are photographs.\n", False),
        ("c.txt", "cats/1.jpg\n", False),
        ("empty.txt", "", False),
        ("d.json", "[]", False),
        ("e.CSV", "anything\n", True),
        (".csv", "path,label\n", True),
        ("f.NDJSON", "{}", True),
    ):
        (tmp_path / name).write_text(text)
        assert manifest.SOURCE.accepts(look_at(tmp_path / name), ConvertSettings()) == taken, name
    file = write_parquet(tmp_path / "rows.bin", image=["1.jpg"], label=["a"])
    assert manifest.SOURCE.accepts(look_at(file), ConvertSettings())


def test_the_folder_above_a_list_is_escaped_in_keys(tmp_path: Path) -> None:
    jpeg = (PHOTOS / PICTURES[0]).read_bytes()
    folder = put_files(tmp_path / "100% wool", {"a.jpg": jpeg, "lists/all.txt": "a.jpg cat\n"})
    (ref,) = listed(folder / "lists" / "all.txt")
    assert ref.is_candidate and ref.key == "100%25 wool/a.jpg"


def test_a_folder_with_other_files_is_not_a_manifest(tmp_path: Path) -> None:
    for number, (expected, *names) in enumerate(
        ((False,), (True, "a.csv", "_SUCCESS"), (False, "a.csv", "b.parquet"), (False, "a.csv", "images/c"))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        put_files(folder, dict.fromkeys(map(str, names), b""))
        assert manifest.SOURCE.accepts(look_at(folder), ConvertSettings()) == expected, names


@pytest.mark.parametrize(
    ("name", "data", "given", "message"),
    [
        ("a.csv", b"", {}, "is empty"),
        ("a.csv", b"\n\n", {}, "holds no rows"),
        ("a.csv", b"path,label,path\n1.jpg,a,b\n", {}, "two columns 'path'"),
        ("a.csv", b"path,lable\n1.jpg,a\n", {}, "--unlabelled keep"),
        ("a.csv", b"path,lable\n1.jpg,a\n", {"label_column": "label"}, "did you mean lable?"),
        ("a.csv", b"path,label\n1.jpg,a\n", {"image_column": "photo"}, "it has path, label"),
        ("a.csv", b"path,label\n1.jpg,a\n", {"extra_columns": "x:int"}, "--extra_columns x: "),
        ("a.csv", b"path,label\n1.jpg,a\n", {"image_root": "/no"}, "--image_root /no"),
        ("a.csv", b"number,label\n1,a\n", {}, "--image_column"),
        ("a.csv", "path,label\n1.jpg,a\n".encode("utf-16-be"), {}, "save it as UTF-8"),
        ("a.csv", b"\x1f\x8b\x08", {}, "unpack it first"),
        ("a.jsonl", b'{\n"path": "1.jpg"\n}\n', {}, "one object on each line"),
        ("a.jsonl", b'{"path": "1.jpg"}\n', {}, "--label_column"),
        ("a.parquet", b"PAR1 no parquet at all PAR1", {}, "cannot be read as Parquet"),
        ("a.csv", b"path,label\n1.jpg,a\n", {"layout": "detection"}, "--layout"),
    ],
)
def test_unreadable_manifests_are_refused(
    tmp_path: Path, name: str, data: bytes, given: Any, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    settings = ConvertSettings(input=(str(tmp_path / name),), source="manifest", **given)
    with pytest.raises(UsageError) as error:
        check_inputs(settings, None)
    assert message in error.value.message and "\n" not in error.value.message


def test_a_table_without_rows_is_empty(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("path,label\n")
    path = write_parquet(tmp_path / "a.parquet", path=pyarrow.array([], "string"), label=[])
    assert listed(path) == listed(tmp_path / "a.csv") == []
    with pytest.raises(UsageError, match=r"a\.csv is empty; name a folder that holds images, or a table"):
        convert(input=tmp_path / "a.csv", output=tmp_path / "out")


def test_wrong_columns_of_parquet_are_refused(tmp_path: Path) -> None:
    jpeg = (PHOTOS / PICTURES[0]).read_bytes()
    for columns, message in (
        ({"image": [{"bytes": jpeg}], "label": [1]}, "holds no paths but struct"),
        ({"image": [jpeg], "label": [1]}, "holds no paths but images"),
        ({"image": [1], "label": [1]}, "holds no paths but int64"),
        ({"x": [1]}, "--image_column"),
    ):
        with pytest.raises(UsageError) as error:
            described(write_parquet(tmp_path / "a.parquet", **columns))
        assert message in error.value.message


def test_a_damaged_parquet_stops_the_job(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "a.parquet", path=[f"{i}.jpg" for i in range(5000)], label=["a"] * 5000)
    data = bytearray(file.read_bytes())
    data[100:2000] = bytes(1900)
    file.write_bytes(data)
    with pytest.raises(UsageError, match="cannot be read as Parquet"):
        listed(file)


def test_columns_are_chosen_by_names_and_values(tmp_path: Path) -> None:
    for header, row, message in (
        (("image", "file", "class"), ("17", "a.jpg", "x"), "images in 'file', classes in 'class'"),
        (("image", "file", "class"), ("17", "18", "x"), "images in 'image', classes in 'class'"),
        (("LABEL", "File Name", "ML-Use"), ("x", "a.jpg", "test"), "in 'LABEL', splits in 'ML-Use'"),
        (("label", "path", "", ""), ("x", "a.jpg", "", ""), "images in 'path', classes in 'label'"),
        (("path", "label", "Path"), ("a.jpg", "x", "b.jpg"), "images in 'path', classes in 'label'"),
    ):  # fmt: skip
        assert message in described(write_csv(tmp_path / "a.csv", [header, row]))


def test_a_warning_says_that_the_first_images_are_missing(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "rows.csv", [("path", "label"), *ROWS])
    assert "none of the first 13 images is there, so all are searched" in described(file)
    assert "is there" not in described(file, image_root=ROOT)
    remote = write_csv(tmp_path / "gs.csv", [("path", "label"), ("gs://b/1.jpg", "a")])
    assert "is there" not in described(remote)


def test_a_parquet_that_changes_stops_the_job(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "a.parquet", path=["1.jpg"], label=["a"])
    context = Context(ConvertSettings(input=(str(file),)), Spool(str(tmp_path)))
    (part,) = manifest.SOURCE.parts(Input(str(file), "", is_file=True), context)
    write_parquet(tmp_path / "a.parquet", path=["1.jpg", "2.jpg"], label=["a", "b"])
    with pytest.raises(EngineError, match="changed while"):
        list(manifest.SOURCE.list_part(part, context))
