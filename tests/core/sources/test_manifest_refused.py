"""Manifests that cannot be read, which files are manifests, and messages before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from helpers.hostile import refused
from helpers.manifests import PICTURES, ROWS, described, listed, write_csv, write_parquet
from helpers.repository import PHOTOS

from shardwright.core.sources import manifest
from shardwright.core.sources.input_probe import look_at
from shardwright.core.sources.source import Context, Input
from shardwright.core.sources.spool import Spool
from shardwright.pipelines.convert import convert
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import EngineError, UsageError


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
        assert manifest.SOURCE.accepts(look_at(str(tmp_path / name)), ConvertSettings()) == taken, name


def test_a_folder_with_other_files_is_not_a_manifest(tmp_path: Path) -> None:
    for number, (expected, *names) in enumerate(
        ((False,), (True, "a.csv", "_SUCCESS"), (False, "a.csv", "b.parquet"), (False, "a.csv", "images/c"))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in names:
            (folder / str(name)).parent.mkdir(exist_ok=True)
            (folder / str(name)).touch()
        assert manifest.SOURCE.accepts(look_at(str(folder)), ConvertSettings()) == expected, names


@pytest.mark.parametrize(
    ("name", "data", "given", "message"),
    [
        ("a.csv", b"", {}, "is empty"),
        ("a.jsonl", b"", {}, "is empty"),
        ("a.parquet", b"", {}, "is empty"),
        ("a.csv", b"\n\n", {}, "holds no rows"),
        ("a.csv", b"path,label,path\n1.jpg,a,b\n", {}, "two columns 'path'"),
        ("a.csv", b"path,lable\n1.jpg,a\n", {}, "--unlabelled keep"),
        ("a.csv", b"path,lable\n1.jpg,a\n", {"label_column": "label"}, "did you mean lable?"),
        ("a.csv", b"path,label\n1.jpg,a\n", {"image_column": "photo"}, "it has path, label"),
        ("a.csv", b"path,label\n1.jpg,a\n", {"extra_columns": "x:int"}, "--extra_columns x: "),
        ("a.csv", b"path,label\n1.jpg,a\n", {"image_root": "/no"}, "--image_root /no"),
        ("a.csv", b"number,label\n1,a\n", {}, "--image_column"),
        ("a.csv", "path,label\n1.jpg,a\n".encode("utf-16"), {}, "save it as UTF-8"),
        ("a.csv", "path,label\n1.jpg,a\n".encode("utf-16-be"), {}, "save it as UTF-8"),
        ("a.csv", b"\x1f\x8b\x08", {}, "unpack it first"),
        ("a.jsonl", b'{\n"path": "1.jpg"\n}\n', {}, "one object on each line"),
        ("a.jsonl", b'{"path": "1.jpg"}\n', {}, "--label_column"),
        ("a.parquet", b"PAR1 no parquet at all PAR1", {}, "cannot be read as Parquet"),
        ("a.csv", b"path,label\n1.jpg,a\n", {"layout": "detection"}, "--layout"),
    ],
)
def test_unreadable_manifests_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, data: bytes, given: Any, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    options = [f"--{key}={text}" for key, text in given.items()]
    arguments = ["--input", tmp_path / name, "--output", tmp_path / "out", *options]
    assert message in refused(capfd, tmp_path, "convert", "--source", "manifest", *arguments)


def test_a_table_without_rows_is_empty(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("path,label\n")
    write_parquet(tmp_path / "a.parquet", path=pyarrow.array([], "string"), label=[])
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(UsageError, match=f"{name} is empty; name a folder that holds images, or a table"):
            convert(input=tmp_path / name, output=tmp_path / "out")


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


def test_a_parquet_that_changes_stops_the_job(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "a.parquet", path=["1.jpg"], label=["a"])
    context = Context(ConvertSettings(input=(str(file),)), Spool(str(tmp_path)))
    (part,) = manifest.SOURCE.split(Input(str(file), "", is_file=True), context)
    write_parquet(tmp_path / "a.parquet", path=["1.jpg", "2.jpg"], label=["a", "b"])
    with pytest.raises(EngineError, match="changed while"):
        list(manifest.SOURCE.list_part(part, context))


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
    assert "is there" not in described(file, image_root=str(PHOTOS))
    remote = write_csv(tmp_path / "gs.csv", [("path", "label"), ("gs://b/1.jpg", "a")])
    assert "is there" not in described(remote)
