"""Rows of manifests: the same in any ranges; keys and places for every way to write a path."""

from __future__ import annotations

import csv
import io
import os
import tempfile
import unicodedata
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from helpers.examples import examples
from helpers.manifests import listed, write_csv, write_jsonl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardwright.core import storage
from shardwright.core.sources import manifest
from shardwright.core.sources.annotation_files import AnnotationFault
from shardwright.core.sources.file_states import ImageRoot, local_state
from shardwright.core.sources.source import Context, Input
from shardwright.core.sources.spool import Spool
from shardwright.core.sources.tables import files, texts
from shardwright.core.sources.tables.texts import Lines, csv_cells, text_rows
from shardwright.schemas.configuration.settings import ConvertSettings

#: Text that programs write, and text with quotes in wrong places.
MESSES = st.text(st.sampled_from('ab",;\t\r\n \0é'), max_size=60)


def steps_of(data: bytes, step: int) -> Iterator[bytes]:
    for begin in range(0, len(data), step):
        yield data[begin : begin + step]


def one_pass(data: bytes, delimiter: str, skip_spaces: bool) -> list[tuple[int, list[str]]]:
    """Returns (line, cells) of each row that is not blank, as `csv.reader` reads a file."""
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8", "surrogateescape", newline="")
    reader = csv.reader(text, delimiter=delimiter, skipinitialspace=skip_spaces)
    rows, line = [], 1
    for cells in reader:
        if any(cell.strip() for cell in cells):
            rows.append((line, cells))
        line = reader.line_num + 1
    return rows


def in_ranges(data: bytes, stretch: int, step: int, delimiter: str, skip_spaces: bool) -> list[Any]:
    """Returns the same, read one range at a time."""
    with tempfile.NamedTemporaryFile() as file, mock.patch.object(files, "STRETCH", stretch):
        file.write(data)
        file.flush()
        state = storage.StoredObject(file.name, len(data), "")
        table = files.Table(state, texts.CSV, (), delimiter=delimiter, skip_spaces=skip_spaces)
        ranges = [*files.ranges_of(table)]
    rows: list[Any] = []
    for begin, end, number in ranges:
        rows += csv_cells(Lines(steps_of(data[begin:end], step)), number, delimiter, skip_spaces)
    return rows


@given(
    text=MESSES, delimiter=st.sampled_from(",;\t"), stretch=st.integers(1, 30), step=st.integers(1, 30),
    skip_spaces=st.booleans(),
)  # fmt: skip
@example('"a"b"c\nd,e"f\ng\n', ",", 1, 30, False)
@example('a, "b\nc"\nd\n', ",", 1, 30, True)
@example('a,"b""\nc\n', ",", 3, 2, False)
@example('a,"x""\r"\r\n"\n",""\r\n', ",", 1, 1, False)
def test_any_ranges_of_a_csv_give_the_same_rows(
    text: str, delimiter: str, stretch: int, step: int, skip_spaces: bool
) -> None:
    data = text.encode()
    found = in_ranges(data, stretch, step, delimiter, skip_spaces)
    expected = one_pass(data, delimiter, skip_spaces)
    bad = [row for row in found if isinstance(row[1], str)]
    if bad:  # the last row has no end, so each of its lines is lost
        assert found[: -len(bad)] == [row for row in expected if row[0] < bad[0][0]]
        assert [number for number, _ in bad] == list(range(bad[0][0], bad[0][0] + len(bad)))
        assert bad[-1][0] == len(data.splitlines())
    else:
        assert found == expected


def test_an_unclosed_quote_is_distinguished_from_one_closed_at_the_end() -> None:
    problem = "a quote opens in line 7 and never closes"
    for text, expected in (
        (b'a,"b"', [(7, ["a", "b"])]), (b'"', [(7, problem)]),
        (b'c,"d\ne,f\n\n', [(7, problem), (8, problem), (9, problem)]),
    ):  # fmt: skip
        assert list(csv_cells(Lines([text]), 7, ",")) == expected


def test_a_quote_with_too_much_text_loses_only_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "LONGEST", 1000)
    limit = csv.field_size_limit(1000)
    data = b'a,b\nc,"d\n' + b"e,f\n" * 2000
    found = list(csv_cells(Lines(steps_of(data, 300)), 1, ","))
    csv.field_size_limit(limit)
    assert [number for number, _ in found] == list(range(1, 2003))
    lost = [number for number, cells in found if isinstance(cells, str)]
    assert lost == list(range(2, 2 + len(lost))) and 200 < len(lost) < 300


def test_an_endless_line_needs_no_memory_and_loses_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "LONGEST", 1000)
    for ending in (b"\n", b"\r", b"\r\n"):
        for step in (7, 100, 999):
            data = ending.join((b"a,b", b"x" * 5000, b"c,d", b"y" * 5000))
            for rows in (partial(csv_cells, delimiter=","), partial(text_rows, parse=list)):
                found = rows(Lines(steps_of(data, step)), 1)
                expected = [(1, list), (2, str), (3, list), (4, str)]
                assert [(number, type(cells)) for number, cells in found] == expected, (ending, step)


def test_a_very_long_cell_is_read() -> None:
    data = b'a,"' + b"x" * 3_000_000 + b'",c\n'
    ((number, cells),) = csv_cells(Lines(steps_of(data, 1 << 20)), 1, ",")
    assert number == 1 and [len(cell) for cell in cells] == [1, 3_000_000, 1]


def test_other_values_than_json_objects_are_bad_lines(tmp_path: Path) -> None:
    bad = [b"{", b"[1]", b'{"a": 1} {"a": 2}', b"[" * 100_000, b"\xff", b"9" * 5000]
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"\n".join([*bad, b'{"b": {"path": "gs://b/1.jpg", "label": "x"}}']))
    *refs, last = listed(file, image_column="b.path", label_column="b.label")
    assert [(ref.key, ref.reason) for ref in refs] == [(f"a.jsonl:{line}", "BAD_ROW") for line in range(1, 7)]
    assert all("it is not" in ref.message for ref in refs) and (last.key, last.label) == ("b/1.jpg", "x")


def test_every_row_is_the_same_in_any_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"gs://b/{i}.jpg", f'a "b", {i % 3}\nc', "x" * (i % 40)) for i in range(300)]
    csv_file = write_csv(tmp_path / "a.csv", [("path", "label", "note"), *rows], encoding="utf-8-sig")
    json_file = write_jsonl(tmp_path / "a.jsonl", [{"path": row[0], "label": row[1]} for row in rows])
    whole = {file: listed(file) for file in (csv_file, json_file)}
    assert [ref.message for ref in whole[csv_file]] == [f"a.csv, line {2 * i + 2}" for i in range(300)]
    for stretch in (1, 50, 700):
        monkeypatch.setattr(files, "STRETCH", stretch)
        for file, refs in whole.items():
            context = Context(ConvertSettings(input=(str(file),)), Spool(str(tmp_path)))
            assert len(list(manifest.SOURCE.parts(Input(str(file), "", is_file=True), context))) > 10
            assert listed(file) == refs


VALUE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.lists(st.text(max_size=3) | st.none() | st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)  # fmt: skip


@settings(max_examples=examples(200))
@given(
    rows=st.lists(st.tuples(*[VALUE] * 6), max_size=8),
    separator=st.sampled_from(("", "|")),
    extra=st.sampled_from(("x:int", "x:string[]", "x:float")),
)
def test_any_values_fit_into_a_row(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]], separator: str, extra: str
) -> None:
    names = ("path", "label", "split", "group", "sha256", "x")
    file = tmp_path_factory.mktemp("any") / "a.jsonl"
    write_jsonl(file, [dict.fromkeys(names, ""), *(dict(zip(names, row)) for row in rows)])
    refs = listed(file, group_column="group", extra_columns=extra, label_separator=separator)
    assert len(refs) == len(rows) + 1
    for ref in refs:
        for text in (ref.key, ref.label, ref.split, ref.group, ref.message):
            text.encode()


PATHS = st.lists(st.sampled_from([*"a./: é\udcff~\\\n", "%FF", "%2e", "file://", "gs://"]), max_size=16).map(
    "".join
)


@pytest.mark.parametrize(
    ("root", "path", "key", "uri"),
    [
        ("/data", "cats/1.jpg", "cats/1.jpg", "/data/cats/1.jpg"),
        ("/data", "./cats//1.jpg", "cats/1.jpg", "/data/./cats//1.jpg"),
        ("/data", "dogs/../cats/1.jpg", "cats/1.jpg", "/data/dogs/../cats/1.jpg"),
        ("/data", "/data/cats/1.jpg", "cats/1.jpg", "/data/cats/1.jpg"),
        ("/data", "../data/cats/1.jpg", "cats/1.jpg", "/data/../data/cats/1.jpg"),
        ("/data/", "../images/1.jpg", "images/1.jpg", "/data/../images/1.jpg"),
        ("/data", "/other/1.jpg", "other/1.jpg", "/other/1.jpg"),
        ("/data", "/database/1.jpg", "database/1.jpg", "/database/1.jpg"),
        ("/data", "100%.jpg", "100%25.jpg", "/data/100%.jpg"),
        ("/data", "\udcff.jpg", "%FF.jpg", "/data/\udcff.jpg"),
        ("/data", "e\u0301.jpg", "é.jpg", "/data/e\u0301.jpg"),
        ("/data", "file://localhost/other/1.jpg", "other/1.jpg", "/other/1.jpg"),
        ("/data", "file:///other/my%20cat.jpg", "other/my cat.jpg", "/other/my cat.jpg"),
        ("/data", "file:///data/%FF%C3%A9.jpg", "%FFé.jpg", "/data/\udcffé.jpg"),
        ("/data", "gs://b/cats/1.jpg", "b/cats/1.jpg", "gs://b/cats/1.jpg"),
        ("/data", "GS://b/cats/1.jpg", "b/cats/1.jpg", "gs://b/cats/1.jpg"),
        ("/data", "s3://b/../x//1.jpg", "x/1.jpg", "s3://b/../x//1.jpg"),
        ("/data", " gs://b/1.jpg ", "b/1.jpg", "gs://b/1.jpg"),
        ("", "cats/1.jpg", "cats/1.jpg", "cats/1.jpg"),
        ("", "../1.jpg", "1.jpg", "../1.jpg"),
        ("/", "cats/1.jpg", "cats/1.jpg", "/cats/1.jpg"),
        ("gs://b/set", "cats/1.jpg", "cats/1.jpg", "gs://b/set/cats/1.jpg"),
        ("gs://b/set/", "./cats//1.jpg", "cats/1.jpg", "gs://b/set/cats/1.jpg"),
        ("gs://b/set", "../images/1.jpg", "images/1.jpg", "gs://b/images/1.jpg"),
        ("gs://b/set", "gs://b/set/cats/1.jpg", "cats/1.jpg", "gs://b/set/cats/1.jpg"),
        ("gs://b/set", "gs://b/settings/1.jpg", "b/settings/1.jpg", "gs://b/settings/1.jpg"),
        ("gs://b/set", "/tmp/1.jpg", "tmp/1.jpg", "/tmp/1.jpg"),
        ("gs://b/set", " 1.jpg", "1.jpg", "gs://b/set/1.jpg"),
    ],
)
def test_paths_give_key_and_place(root: str, path: str, key: str, uri: str) -> None:
    assert ImageRoot(root).find(path) == (key, uri)


@pytest.mark.parametrize(
    ("root", "path", "message"),
    [
        ("/data", " \t", "names no image"),
        ("/data", "a\0b.jpg", "NUL"),
        ("/data", "..", "folder"),
        ("/data", "cats/", "folder"),
        ("/data", "http://example.org/1.jpg", "no storage for http://"),
        ("/data", "gs://bucket", "names no object"),
        ("/data", "gs://bucket/cats/", "names no object"),
        ("/data", "gs:///1.jpg", "names no object"),
        ("/data", "gs://b/..", "names no file"),
        ("/data", "gs://b b/1.jpg", "cannot be that of an object"),
        ("/data", "gs://b/1\r.jpg", "cannot be that of an object"),
        ("/data", "gs://b/" + "é" * 600, "cannot be that of an object"),
        ("gs://b/set", "x" * 1030, "cannot be that of an object"),
        ("/data", "a b://c/1.jpg", "no storage"),
        ("/data", "gs://b/\udcff.jpg", "not UTF-8"),
        ("/data", "\ud800.jpg", "not UTF-8"),
        ("gs://b/set", "\udcff.jpg", "not UTF-8"),
        ("gs://b/set", "../../1.jpg", "out of the bucket"),
    ],
)
def test_wrong_paths_are_refused(root: str, path: str, message: str) -> None:
    with pytest.raises(AnnotationFault, match=message):
        ImageRoot(root).find(path)


@given(PATHS, st.sampled_from(("", "/", "/data/é", "data", "gs://b", "gs://b/x")))
@example("/..a", "")
@example("file://..", "/data/é")
@example("file://", "/")
def test_any_path_gives_a_valid_key(path: str, root: str) -> None:
    try:
        key, uri = ImageRoot(root).find(path)
    except AnnotationFault:
        return
    assert key and uri and "\udcff" not in key and key == unicodedata.normalize("NFC", key)
    assert not {"", ".", ".."} & set(key.split("/"))
    key.encode()
    os.fsencode(uri)


def test_a_file_has_one_key_however_its_path_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written = ("x/1.jpg", "./x/1.jpg", "x/../x/1.jpg", f"{tmp_path}/x/1.jpg", f"file://{tmp_path}/x/1.jpg")
    for root in ("", ".", str(tmp_path)):
        assert {ImageRoot(root).find(path)[0] for path in written} == {"x/1.jpg"}
    inside = ("1.jpg", "../x/1.jpg", f"{tmp_path}/x/1.jpg")
    assert {ImageRoot("x").find(path)[0] for path in inside} == {"1.jpg"}


def test_white_space_matters_if_the_file_name_has_it(tmp_path: Path) -> None:
    (tmp_path / " 1.jpg").touch()
    (tmp_path / "2.jpg").touch()
    root = ImageRoot(str(tmp_path))
    assert root.find(" 1.jpg") == (" 1.jpg", f"{tmp_path}/ 1.jpg")
    assert root.find(" 2.jpg ") == ("2.jpg", f"{tmp_path}/2.jpg")


def test_the_state_of_a_file_is_its_size_and_time(tmp_path: Path) -> None:
    file = tmp_path / "e\u0301.jpg"
    file.write_bytes(b"123")
    uri, size, version = local_state(str(file))
    assert (uri, size, version) == (str(file), 3, str(file.stat().st_mtime_ns))
    assert local_state(str(tmp_path / "é.jpg")) == (uri, size, version)  # as macOS and Linux write the name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no.jpg", "no such file or directory"),
        ("cats\\no.jpg", "write / instead"),
        (".", "is a folder"),
        ("fifo", "not a regular file"),
        ("file/x.jpg", "not a directory"),
        ("x" * 300, "name too long"),
        ("loop", "symbolic links"),
    ],
)
def test_a_missing_file_is_reported_with_a_reason(tmp_path: Path, name: str, message: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(AnnotationFault, match=message) as fault:
        local_state(str(tmp_path / name))
    assert fault.value.reason == "UNREADABLE"
