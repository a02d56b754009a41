"""What rows hold: paths, classes, objects, images as base64 text, and columns of every type."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from helpers.annotation_sets.manifest_rows import put_imagenet, row_of
from helpers.embedded import png, read, refs_of
from helpers.fewer_imports import late
from helpers.hostile import check_books, shard_hashes
from helpers.listing import Photo, listed, put_photos, refusal
from helpers.manifests import PICTURES, write_csv, write_jsonl, write_parquet
from helpers.manifests import listed as listed_rows
from helpers.packing import list_refs, tar_of
from helpers.records import examples, labels_by_key
from helpers.repository import PHOTOS
from helpers.tensorflow_records import read_records
from pyarrow import parquet

from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.image_files import splits_of_files
from shardwright.core.sources.tables import files
from shardwright.core.sources.tables.rows import objects_of
from shardwright.core.sources.tables.texts import is_path_list, path_and_label
from shardwright.pipelines.convert import convert
from shardwright.schemas.columns import decode_extra
from shardwright.schemas.errors import ImageFault, UsageError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.values import ValueType


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
    made = convert(input=lists, output=tmp_path / "out", verify="none")
    check_books(tmp_path / "out")
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


def check(found: Any, photos: list[Photo], folder: str = "") -> None:
    assert found.input.source == "manifest" and "objects in 'objects'" in found.input.detected_as
    found.check_boxes(photos, folder)


@pytest.mark.parametrize("kind", ["jsonl", "list", "csv", "printed", "parquet"])
def test_metadata_beside_its_images_is_read(tmp_path: Path, kind: str) -> None:
    photos = put_photos(tmp_path)
    rows = [row_of(photo) for photo in photos]
    if kind in ("jsonl", "list"):
        for row in rows if kind == "list" else ():
            pairs = zip(row["objects"]["bbox"], row["objects"]["categories"], strict=True)
            row["objects"] = [{"bbox": box, "category": name} for box, name in pairs]
        write_jsonl(tmp_path / "metadata.jsonl", rows)
    elif kind == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "metadata.parquet")
    else:
        write = json.dumps if kind == "csv" else str
        cells = [(row["file_name"], write(row["objects"])) for row in rows]
        write_csv(tmp_path / "metadata.csv", [("file_name", "objects"), *cells])
    check(listed(tmp_path), photos)


def test_images_may_be_in_other_places(tmp_path: Path) -> None:
    photos = put_photos(tmp_path / "in" / "images")
    rows = [row_of(photo) | {"file_name": f"images/{photo.name}"} for photo in photos]
    write_jsonl(tmp_path / "in" / "metadata.jsonl", rows)
    check(listed(tmp_path / "in"), photos, "images/")
    check(listed(tmp_path / "in" / "metadata.jsonl"), photos, "images/")
    for split in ("train", "test"):
        photos = put_photos(tmp_path / "two" / split)
        write_jsonl(tmp_path / "two" / split / "metadata.jsonl", [row_of(photo) for photo in photos])
    found = listed(tmp_path / "two")
    assert {ref.split for ref in found.refs.values()} == {"train", "test"}
    check(found, photos, "test/")


def test_ids_sizes_and_other_fields_are_read(tmp_path: Path) -> None:
    photos = put_photos(tmp_path)
    rows = [row_of(photo, numbers=True) for photo in photos]
    for row, photo in zip(rows, photos, strict=True):
        row |= {"width": photo.size[0], "height": photo.size[1], "split": "train"}
        count = len(photo.boxes)
        row["objects"] |= {"area": [7] * count, "iscrowd": [1] * count, "id": [3] * count}
    write_jsonl(tmp_path / "metadata.jsonl", rows)
    found = listed(tmp_path)
    assert found.ids == {"0": 0, "1": 1}
    annotations = found.annotations_of(photos[3].name)
    objects = {(item.label, item.area, item.crowd) for item in annotations.objects or ()}
    assert annotations.size == photos[3].size and objects == {("0", 7, True), ("1", 7, True)}
    assert {ref.split for ref in found.refs.values()} == {"train"}
    elsewhere = [row | {"file_name": f"/home/ann/{row['file_name']}"} for row in rows]
    assert listed(write_jsonl(tmp_path / "moved.jsonl", elsewhere)).ids == found.ids


def test_messages_about_faults_name_the_line(tmp_path: Path) -> None:
    photos = put_photos(tmp_path)
    rows = [row_of(photo) for photo in photos]
    rows[0]["objects"] = None
    rows[1]["objects"]["categories"] = []
    rows[2]["objects"]["bbox"] = [[0.1, 0.2, 0.3, 0.4]] * 2
    rows[3]["objects"]["bbox"][1] = [1, 2, 3]
    rows.append({"file_name": "gone.jpg", "objects": {"bbox": [], "category": []}})
    write_jsonl(tmp_path / "metadata.jsonl", rows)
    found = listed(tmp_path)
    messages = {Path(key).stem: ref.message for key, ref in found.refs.items()}
    assert messages["eagle"] == "metadata.jsonl, line 1: it has no objects"
    assert messages["apple"] == "metadata.jsonl, line 2: its objects have 1 box and 0 categories"
    assert "line 3: its boxes are shares of the image" in messages["house"]
    assert "the bbox of object 1 is [1, 2, 3] instead of x, y, width, height" in messages["seagull"]
    reasons = found.reasons()
    assert reasons.pop("gone.jpg") == "UNREADABLE" and set(reasons.values()) == {"BAD_ANNOTATION"}


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ("{", "not JSON"), ("", "no objects"), ({"category": []}, "no bbox"), ({"bbox": []}, "no categories"),
        (3, "neither lists nor a list"), ("__import__('os')", "not JSON"),
    ],
)  # fmt: skip
def test_broken_objects_are_faults(objects: Any, why: str) -> None:
    with pytest.raises(AnnotationFault, match=why):
        objects_of(objects)
    assert objects_of([]).objects == () == objects_of({"bbox": [], "categories": []}).objects


def test_layouts_decide_whether_objects_are_read(tmp_path: Path) -> None:
    photos = put_photos(tmp_path)
    write_jsonl(tmp_path / "metadata.jsonl", [row_of(photo) | {"price": 1.5} for photo in photos])
    found = listed(tmp_path, extra_columns="price:float")
    found.check_boxes(photos)
    assert all(decode_extra(ref.extra) == {"price": [1.5]} for ref in found.refs.values())
    assert "have objects and no class; choose --layout detection" in refusal(tmp_path)
    write_jsonl(tmp_path / "rows.jsonl", [{"file_name": photo.name, "label": "a"} for photo in photos])
    assert "no column objects, only file_name, label;" in refusal(tmp_path / "rows.jsonl", "detection")
    (tmp_path / "list.txt").write_text(f"{photos[0].name} a\n")
    assert "no column objects, only path, class;" in refusal(tmp_path / "list.txt", "detection")


_IMAGES = [png(number, (40 + number, 30)) for number in range(6)]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


_FORMS: dict[str, Callable[[bytes], object]] = {
    "plain": _text,
    "slashes": _text,
    "named": _text,
    "url": lambda data: f"data:image/png;base64,{_text(data)}",
    "object": lambda data: {"bytes": _text(data), "path": "x.png"},
    "urlsafe": lambda data: base64.urlsafe_b64encode(data).decode().rstrip("="),
    "lines": lambda data: base64.encodebytes(data).decode(),
}


@pytest.mark.parametrize("form", _FORMS)
def test_base64_images_are_read(tmp_path: Path, form: str) -> None:
    column = "pixels" if form == "named" else "image"
    rows: list[dict[str, object]] = [
        {"id": "é", column: _FORMS[form](data), "label": "ab"[i % 2]} for i, data in enumerate(_IMAGES)
    ]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    if form == "slashes":
        path.write_text(path.read_text().replace("/", "\\/"))
    given = {"image_column": "pixels"} if form == "named" else {}
    refs, _ = refs_of(path, tmp_path / "spool", **given)
    assert [read(ref) for ref in refs] == _IMAGES
    assert [ref.key for ref in refs] == [f"rows.jsonl!{number:06d}" for number in range(1, 7)]
    assert [(ref.label, ref.size) for ref in refs] == [*zip("ababab", map(len, _IMAGES))]
    assert not (tmp_path / "spool" / "_work").exists()


def test_rows_with_other_images(tmp_path: Path) -> None:
    (tmp_path / "one.png").write_bytes(png(7))
    images = [{"bytes": _text(_IMAGES[0])}, {"bytes": None, "path": "one.png"}, {"bytes": None},
              {"bytes": "no base64!"}, {"bytes": 7}]  # fmt: skip
    path = write_jsonl(tmp_path / "rows.jsonl", [{"image": image, "label": "a"} for image in images])
    with path.open("a") as file:
        file.write("\n{not json\n")
    refs, _ = refs_of(path, tmp_path / "spool")
    assert [(ref.key, ref.reason) for ref in refs] == [
        ("rows.jsonl!000001", ""), ("one.png", ""), ("rows.jsonl:3", "BAD_ROW"),
        ("rows.jsonl!000004", "CORRUPT"), ("rows.jsonl!000005", "CORRUPT"), ("rows.jsonl:7", "BAD_ROW"),
    ]  # fmt: skip
    assert [read(ref) for ref in refs[:2]] == [_IMAGES[0], png(7)]


def test_long_files_are_split_into_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "STRETCH", 500)
    rows: list[dict[str, object]] = [{"label": "a", "image": _text(data)} for data in _IMAGES * 5]
    refs, _ = refs_of(write_jsonl(tmp_path / "rows.jsonl", rows), tmp_path / "spool")
    assert [read(ref) for ref in refs] == _IMAGES * 5
    assert [ref.key[-3:] for ref in refs] == [f"{number:03d}" for number in range(1, 31)]


def test_paths_come_first(tmp_path: Path) -> None:
    (tmp_path / "one.png").write_bytes(png(7))
    rows: list[dict[str, object]] = [{"file_name": "one.png", "image": _text(_IMAGES[0]), "label": "a"}]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    refs, _ = refs_of(path, tmp_path / "spool")
    assert [ref.key for ref in refs] == ["one.png"]
    refs, _ = refs_of(path, tmp_path / "spool", image_column="image")
    assert [read(ref) for ref in refs] == [_IMAGES[0]]


def test_changed_text_is_a_fault_of_one_image(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "rows.jsonl", [{"image": _text(_IMAGES[0]), "label": "a"}])
    refs, _ = refs_of(path, tmp_path / "spool")
    place = json.loads(refs[0].place)
    bad = refs[0]._replace(place=json.dumps([place[0], place[1] - 1, *place[2:]]))
    with pytest.raises(ImageFault):
        read(bad)


tf = late("tensorflow")

TYPES = [type_.value for type_ in ValueType]
COLUMNS = ",".join([*(f"{name}_one:{name}" for name in TYPES), *(f"{name}_list:{name}[]" for name in TYPES)])
#: Two values of each type; the largest ones are the limits of the type.
VALUES: dict[str, list[Any]] = {
    "bool": [True, False], "enum": [3, -(2**31)], "int32": [2**31 - 1, -(2**31)], "uint32": [2**32 - 1, 0],
    "int64": [2**63 - 1, -(2**63)], "uint64": [2**63 - 1, 2**53 + 1], "float": [0.1, math.inf],
    "double": [1e-50, math.nan], "string": ["é|\u2028,\"'", "x"], "bytes": ["\x1f", "b"],
}  # fmt: skip
ARROW = {
    "bool": pyarrow.bool_(), "enum": pyarrow.int64(), "int32": pyarrow.int32(), "uint32": pyarrow.uint32(),
    "int64": pyarrow.int64(), "uint64": pyarrow.uint64(), "float": pyarrow.float32(),
    "double": pyarrow.float64(), "string": pyarrow.string(), "bytes": pyarrow.binary(),
}  # fmt: skip
DTYPES = {"float": "float32", "double": "float32", "string": "string", "bytes": "string"}


def rows_of() -> list[dict[str, Any]]:
    """Returns two rows, each with a value of every type and a list of values; the second list is empty."""
    return [
        {
            "path": path,
            "label": "fruit",
            **{f"{name}_one": VALUES[name][number] for name in TYPES},
            **{f"{name}_list": [] if number else VALUES[name] for name in TYPES},
        }
        for number, path in enumerate(PICTURES[:2])
    ]


def as_csv(file: Path) -> Path:
    rows = rows_of()
    cells = [[";".join(map(str, v)) if isinstance(v, list) else v for v in row.values()] for row in rows]
    return write_csv(file, [[*rows[0]], *cells])


def as_parquet(file: Path) -> Path:
    kinds = [(f"{name}_one", type_) for name, type_ in ARROW.items()]
    kinds += [(f"{name}_list", pyarrow.list_(type_)) for name, type_ in ARROW.items()]
    schema = pyarrow.schema([("path", pyarrow.string()), ("label", pyarrow.string()), *kinds])
    parquet.write_table(pyarrow.Table.from_pylist(rows_of(), schema), file)
    return file


MAKERS: dict[str, Callable[[Path], Path]] = {
    "rows.csv": as_csv,
    "rows.jsonl": lambda file: write_jsonl(file, rows_of()),
    "rows.parquet": as_parquet,
}


SETTINGS: Any = {"image_root": str(PHOTOS), "extra_columns": COLUMNS, "label_separator": ";"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset from a CSV file."""
    root = tmp_path_factory.mktemp("typed")
    convert(input=as_csv(root / "rows.csv"), output=root / "out", resize=8, verify="none", **SETTINGS)
    return root / "out"


def parsed(serialized: Iterable[bytes]) -> dict[str, dict[str, Any]]:
    """Returns file name -> record, parsed with TensorFlow."""
    description: dict[str, Any] = {"image/filename": tf.io.FixedLenFeature([], tf.string)}
    for name in TYPES:
        dtype = tf.as_dtype(DTYPES.get(name, "int64"))
        description[f"{name}_one"] = tf.io.FixedLenFeature([], dtype)
        description[f"{name}_list"] = tf.io.FixedLenSequenceFeature([], dtype, allow_missing=True)
    records = (tf.io.parse_single_example(record, description) for record in serialized)
    named = [{name: value.numpy() for name, value in record.items()} for record in records]
    return {record["image/filename"].decode(): record for record in named}


def test_tensorflow_reads_the_values_that_it_would_have_stored(made: Path) -> None:
    records = parsed(read_records(made / file for file in shard_hashes(made)))
    assert set(records) == set(PICTURES[:2])
    for number, path in enumerate(PICTURES[:2]):
        for name, values in VALUES.items():
            stored: Any = [value.encode() if isinstance(value, str) else value for value in values]
            if DTYPES.get(name) == "float32":
                stored = list(tf.train.FloatList(value=stored).value)
            one, several = (records[path][f"{name}_{form}"] for form in ("one", "list"))
            np.testing.assert_array_equal(one, stored[number], err_msg=name)
            np.testing.assert_array_equal(several, [] if number else stored, err_msg=name)


def test_every_kind_of_manifest_gives_the_same_values(tmp_path: Path) -> None:
    first, *others = (listed_rows(maker(tmp_path / name), **SETTINGS) for name, maker in MAKERS.items())
    for refs in others:
        assert [ref._replace(message="") for ref in refs] == [ref._replace(message="") for ref in first]


def last_row(path: Path, column: str) -> ImageRef:
    """Returns the last row of a manifest."""
    return listed_rows(path, extra_columns=column, image_root=str(PHOTOS))[-1]


@pytest.mark.parametrize(
    ("type_", "value", "fault"),
    [
        ("int", 3.0, "x: 3.0 is not a valid int64: it is a float"),
        ("string", 3, "x: 3 is not a valid string; write it as text"), ("float", None, "x is empty"),
        ("float", [1.0], "declare it as x:...[]"), ("float[]", [[1.0]], "inside a list"),
        ("int[]", [1, None], "an item of its list is missing"), ("int[]", {"a": 1}, "is not a list"),
        ("uint64", 2**63, "not a valid uint64: a tf.train.Feature stores"), ("string", {}, "holds several"),
    ],
)  # fmt: skip
def test_json_values_of_another_type_are_faults(tmp_path: Path, type_: str, value: Any, fault: str) -> None:
    rows = [{"path": PICTURES[0], "label": "a", "x": x} for x in (None, value)]
    ref = last_row(write_jsonl(tmp_path / "a.jsonl", rows), f"x:{type_}")
    assert ref.reason == "BAD_ROW" and fault in ref.message and len(ref.message) < 250


@pytest.mark.parametrize("number", ["1e400", "-1e999", "1e39"])
def test_a_number_too_large_for_json_is_not_infinity(tmp_path: Path, number: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(f'{{"path": "{PICTURES[0]}", "label": "a", "x": {number}}}\n')
    assert "too large for the 32 bits of a float" in last_row(file, "x:float").message


@pytest.mark.parametrize(
    ("column", "type_", "stored"),
    [
        (pyarrow.array([Decimal("1.50")]), "float", [1.5]), (pyarrow.array([Decimal("3")]), "int", [3]),
        (pyarrow.array([Decimal("3.0")]), "int", "'3.0' is not a valid int64"),
        (pyarrow.array([[Decimal("1.5"), Decimal("2")]]), "float[]", [1.5, 2.0]),
        (pyarrow.array([date(2020, 1, 2)]), "string", ["2020-01-02"]),
        (pyarrow.array([[date(2020, 1, 2)]]), "string[]", ["2020-01-02"]),
        (pyarrow.array([datetime(2020, 1, 2)]), "int", "is not a valid int64"),
        (pyarrow.array([1.0]), "int", "it is a float"), (pyarrow.array([[[1]]]), "int[]", "inside a list"),
        (pyarrow.array([b"\xff"]), "bytes", ["\udcff"]), (pyarrow.array([[b"\xff"]]), "bytes[]", ["\udcff"]),
        (pyarrow.array(["a"]).dictionary_encode(), "string", ["a"]),
        (pyarrow.array([1.5], pyarrow.float16()), "float", [1.5]),
    ],
)  # fmt: skip
def test_parquet_values_are_converted(tmp_path: Path, column: Any, type_: str, stored: Any) -> None:
    file = write_parquet(tmp_path / "a.parquet", path=[PICTURES[0]], label=["a"], x=column)
    ref = last_row(file, f"x:{type_}")
    if isinstance(stored, str):
        assert ref.reason == "BAD_ROW" and stored in ref.message
    else:
        assert decode_extra(ref.extra) == {"x": stored}


def test_lists_in_cells_are_split_at_a_bar_without_a_separator(tmp_path: Path) -> None:
    for cell, tags in (("x|y", ["x", "y"]), ("", []), ("x;y", ["x;y"])):
        file = write_csv(tmp_path / "a.csv", [("path", "label", "tags"), (PICTURES[0], "a", cell)])
        assert decode_extra(last_row(file, "tags:string[]").extra) == {"tags": tags}


def test_columns_in_samples_of_a_tar_are_read(tmp_path: Path) -> None:
    rows = [{"n": 3, "x": 0.5, "ok": True}, {"n": 3.0, "x": 0.5, "ok": True}, {"n": 3, "x": 1, "ok": 2}, {}]
    files = {}
    for number, row in enumerate(rows):
        files |= {f"{number}.jpg": b"image", f"{number}.json": json.dumps(row | {"label": "a"}).encode()}
    (tmp_path / "a.tar").write_bytes(tar_of({**files, "4.jpg": b"image", "4.cls": b"1"}))
    good, *bad = list_refs(tmp_path / "a.tar", "webdataset", extra_columns="n:uint32,x:double,ok:bool")
    assert decode_extra(good.extra) == {"n": [3], "x": [0.5], "ok": [1]}
    assert [ref.reason for ref in bad] == ["BAD_ANNOTATION"] * 4
    assert "n: 3.0 is not a valid uint32: it is a float" in bad[0].message
    assert "ok: 2 is not a valid bool" in bad[1].message
    assert all("n is empty" in ref.message for ref in bad[2:])


def test_extra_columns_are_refused_for_folders(tmp_path: Path) -> None:
    """This would leave out every image; lists may be empty."""
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: classification\nfeatures: {cost: {column: cost, type: float}}\n")
    for says, settings in (
        ("--extra_columns price: ", {"extra_columns": "price:float"}),
        ("--layout mine, column cost: ", {"layout": str(mine)}),
    ):
        with pytest.raises(UsageError, match=says + ".* read as class_folders, which has no columns"):
            convert(input=PHOTOS, output=tmp_path / "out", **settings)
    assert not listed(PHOTOS, "classification", extra_columns="tags:string[]").reasons()


def test_records_of_a_dataset_keep_their_values(made: Path) -> None:
    settings = {"extra_columns": COLUMNS, "label_separator": ";"}
    found = listed(made, "classification", made.parent, **settings).converted().values()
    before = parsed(read_records(made / file for file in shard_hashes(made)))
    after = parsed(item.example for item in found)
    assert before.keys() == after.keys()
    for key, record in before.items():
        for name, value in record.items():
            np.testing.assert_array_equal(after[key][name], value)
