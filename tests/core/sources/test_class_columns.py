"""Tables with a column of 0 and 1 for each class: rows over several lines, equal images, names of files."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.listing import listed, put_photos

from shardwright.pipelines.convert import convert
from shardwright.schemas.errors import UsageError


def _put(folder: Path, text: str, name: str = "_classes.csv") -> Path:
    put_photos(folder, ("eagle", "apple"))
    (folder / name).write_bytes(text.encode("utf-8-sig"))
    return folder / name


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_a_row_may_span_several_lines(tmp_path: Path, ending: str) -> None:
    rows = ['filename,"a\nbird",fruit', 'eagle.jpg,"1\n",0', "apple.jpg,0,1", "gone.jpg,0,1,1"]
    found = listed(_put(tmp_path, ending.join(rows)), "classification")
    assert found.input.source == "class_columns" and found.ids == {"a\nbird": 0, "fruit": 1}
    labels = {key: ref.label for key, ref in found.refs.items()}
    assert labels == {"eagle.jpg": "a\nbird", "apple.jpg": "fruit", "gone.jpg": ""}
    assert found.reasons().keys() == {"gone.jpg"}
    assert found.refs["gone.jpg"].message == "line 6 of _classes.csv: it has 4 cells instead of 3"


def test_an_image_in_two_rows_is_an_error_that_names_both(tmp_path: Path) -> None:
    path = _put(tmp_path, "filename,bird,fruit\neagle.jpg,1,0\napple.jpg,0,1\neagle.jpg,0,1\n")
    with pytest.raises(UsageError) as error:
        convert(input=path, output=tmp_path / "out")
    assert error.value.message.endswith(
        "_classes.csv: lines 2 and 4 both name eagle.jpg; remove one of them."
    )


def test_only_files_of_the_usual_name_are_detected(tmp_path: Path) -> None:
    path = _put(tmp_path, "filename,label\neagle.jpg,1\napple.jpg,0\n", "my_classes.csv")
    assert listed(path, "classification").input.source == "manifest"
    found = listed(path, "classification", source="class_columns", image_root=tmp_path)
    assert {key: ref.label for key, ref in found.refs.items()} == {"eagle.jpg": "label", "apple.jpg": ""}


@pytest.mark.parametrize(
    ("header", "message"),
    [("filename,bird,bird", "names a class twice"), ("filename,bird,", "an empty class"), ("a,b", "0 or 1")],
)
def test_unclear_headers_are_refused(tmp_path: Path, header: str, message: str) -> None:
    path = _put(tmp_path, f"{header}\neagle.jpg,1,0\n")
    with pytest.raises(UsageError, match=message):
        listed(path, "classification", source="class_columns")
