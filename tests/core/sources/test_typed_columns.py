"""Columns of every type, from CSV, JSON Lines, Parquet and tars to TensorFlow's parse of the records."""

from __future__ import annotations

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
from helpers.fewer_imports import late
from helpers.hostile import shard_hashes
from helpers.listing import listed as found_by_any
from helpers.manifests import PICTURES, listed, write_csv, write_jsonl, write_parquet
from helpers.packing import list_refs, tar_of
from helpers.repository import PHOTOS
from helpers.tensorflow_records import read_records

from shardwright.pipelines.convert import convert
from shardwright.schemas.columns import decode_extra
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.values import ValueType

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
    "bool": pyarrow.bool_(), "enum": pyarrow.int8(), "int32": pyarrow.int32(), "uint32": pyarrow.uint32(),
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
    rows, columns = rows_of(), {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        type_ = ARROW.get(name.partition("_")[0])
        if type_ == pyarrow.binary():
            values = [[item.encode() for item in v] if isinstance(v, list) else v.encode() for v in values]
        if type_ == pyarrow.int8():
            type_ = pyarrow.int64()  # an enum, whatever its width
        type_ = pyarrow.list_(type_) if type_ and name.endswith("_list") else type_
        columns[name] = pyarrow.array(values, type_)
    return write_parquet(file, **columns)


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
    first, *others = (listed(maker(tmp_path / name), **SETTINGS) for name, maker in MAKERS.items())
    for refs in others:
        assert [ref._replace(message="") for ref in refs] == [ref._replace(message="") for ref in first]


def last_row(path: Path, column: str) -> ImageRef:
    """Returns the last row of a manifest."""
    return listed(path, extra_columns=column, image_root=str(PHOTOS))[-1]


@pytest.mark.parametrize(
    ("type_", "value", "fault"),
    [
        ("int", 3.0, "x: 3.0 is not a valid int64: it is a float"),
        ("bool", 2, "x: 2 is not a valid bool"),
        ("uint32", -1, "x: -1 is not a valid uint32"),
        ("string", 3, "x: 3 is not a valid string; write it as text"),
        ("float", "cheap", "x: 'cheap' is not a valid float"), ("float", None, "x is empty"),
        ("float", [1.0], "declare it as x:...[]"), ("float[]", [[1.0]], "inside a list"),
        ("int[]", [1, None], "an item of its list is missing"), ("int[]", {"a": 1}, "is not a list"),
        ("uint64", 2**63, "is not a valid uint64: a tf.train.Feature stores"),
        ("string", {}, "holds several"),
        ("bytes", True, "is not a valid bytes"),
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
        (pyarrow.array([1.0]), "int", "it is a float"), (pyarrow.array([None]), "int", "x is empty"),
        (pyarrow.array([[1, None]]), "int[]", "is missing"),
        (pyarrow.array([[[1]]]), "int[]", "inside a list"),
        (pyarrow.array([{"a": 1}]), "int", "holds several"), (pyarrow.array([b"\xff"]), "bytes", ["\udcff"]),
        (pyarrow.array([b"3"]), "int", "is not a valid int64"),
        (pyarrow.array([[b"\xff"]]), "bytes[]", ["\udcff"]),
        (pyarrow.array([2**63], pyarrow.uint64()), "uint64", "is not a valid uint64"),
        (pyarrow.array(["a"]).dictionary_encode(), "string", ["a"]),
        (pyarrow.array([1.5], pyarrow.float16()), "float", [1.5]),
        (pyarrow.array([3]), "string", "3 is not a valid string"),
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
    assert "n" in bad[2].message and "n" in bad[3].message


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
    assert not found_by_any(PHOTOS, "classification", extra_columns="tags:string[]").reasons()


def test_records_of_a_dataset_keep_their_values(made: Path) -> None:
    settings = {"extra_columns": COLUMNS, "label_separator": ";"}
    found = found_by_any(made, "classification", made.parent, **settings).converted().values()
    before = parsed(read_records(made / file for file in shard_hashes(made)))
    after = parsed(item.example for item in found)
    assert before.keys() == after.keys()
    for key, record in before.items():
        for name, value in record.items():
            np.testing.assert_array_equal(after[key][name], value)
