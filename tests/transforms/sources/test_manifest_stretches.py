"""Manifests read in ranges, with any rows: the same references as in one pass."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from helpers.examples import examples
from helpers.manifests import listed, write_csv, write_jsonl
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.labels import ClassId
from shardwright.transforms.sources import manifest
from shardwright.transforms.sources.source import Context, Input
from shardwright.transforms.sources.spool import Spool

SMALL = {"resize": 16, "max_bad_fraction": 1.0}


def test_every_row_is_the_same_in_any_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"gs://b/{i}.jpg", f'a "b", {i % 3}\nc', "x" * (i % 40)) for i in range(300)]
    csv_file = write_csv(tmp_path / "a.csv", [("path", "label", "note"), *rows], encoding="utf-8-sig")
    json_file = write_jsonl(tmp_path / "a.jsonl", [{"path": row[0], "label": row[1]} for row in rows])
    whole = {file: listed(file) for file in (csv_file, json_file)}
    assert [ref.message for ref in whole[csv_file]] == [f"a.csv, line {2 * i + 2}" for i in range(300)]
    for stretch in (1, 50, 700):
        monkeypatch.setattr(manifest, "STRETCH", stretch)
        for file, refs in whole.items():
            context = Context(ConvertSettings(input=(str(file),)), Spool(str(tmp_path)))
            assert len(list(manifest.SOURCE.split(Input(str(file), "", is_file=True), context))) > 10
            assert listed(file) == refs


NOTE = st.text(st.sampled_from('a",\r\n é'), max_size=6)


@settings(max_examples=examples(100))
@given(
    cells=st.lists(st.tuples(NOTE, NOTE, NOTE), max_size=12),
    quoting=st.sampled_from((csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC)),
    encoding=st.sampled_from(("utf-8", "utf-8-sig")),
    stretch=st.integers(1, 200),
)
def test_any_csv_gives_the_same_rows_in_any_ranges(
    tmp_path_factory: pytest.TempPathFactory,
    cells: list[tuple[str, str, str]],
    quoting: int,
    encoding: str,
    stretch: int,
) -> None:
    header = ("note", "label\r\n", "path")
    rows = [(note, label, f"gs://b/{i}{name}.jpg") for i, (note, label, name) in enumerate(cells)]
    file = write_csv(
        tmp_path_factory.mktemp("any") / "a.csv", [header, *rows], quoting=quoting, encoding=encoding
    )
    expected = []
    with file.open(newline="", encoding="utf-8-sig") as text:
        reader = csv.reader(text)
        next(reader)
        line = reader.line_num + 1
        for _, label, path in reader:
            expected.append((path, label.strip(), line))
            line = reader.line_num + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "STRETCH", stretch)
        found = listed(file)
    for ref, (path, label, line) in zip(found, expected, strict=True):
        assert ref.message.startswith(f"a.csv, line {line}")
        if "\n" in path or "\r" in path:  # names of objects have no line ends
            assert (ref.key, ref.reason) == (f"a.csv:{line}", "BAD_ROW")
        else:
            assert (ref.key, ref.uri, ref.label) == (path.removeprefix("gs://"), path, label)


VALUE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.lists(st.text(max_size=3) | st.none() | st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)  # fmt: skip


@settings(max_examples=examples(200))
@given(rows=st.lists(st.tuples(*[VALUE] * 6), max_size=8), separator=st.sampled_from(("", "|")))
def test_any_values_fit_into_a_row(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]], separator: str
) -> None:
    names = ("path", "label", "split", "group", "sha256", "x")
    file = tmp_path_factory.mktemp("any") / "a.jsonl"
    write_jsonl(file, [dict.fromkeys(names, ""), *(dict(zip(names, row)) for row in rows)])
    for extra in ("x:int", "x:string[]", "x:float"):
        found = listed(file, group_column="group", extra_columns=extra, label_separator=separator)
        refs = [item for item in found if not isinstance(item, ClassId)]
        assert len(refs) == len(rows) + 1
        for ref in refs:
            for text in (ref.key, ref.label, ref.split, ref.group, ref.message):
                text.encode()
