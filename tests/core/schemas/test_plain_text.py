"""Names, and texts of libraries, are shown as plain text that is the same in every run."""

from __future__ import annotations

import io
import json
import zipfile

import pytest
from PIL import Image

from shardwright.pipelines.tables import console, print_table
from shardwright.schemas.dataset import Dataset
from shardwright.schemas.errors import UsageError, words_of
from shardwright.schemas.labels import labels_txt
from shardwright.schemas.plain_text import escape_controls


def test_control_characters_are_written_as_python_does() -> None:
    assert escape_controls("caf\u00e9 \U0001f600 \u200d") == "caf\u00e9 \U0001f600 \u200d"
    escaped = escape_controls("a\x1b[31m\n\t\x00\x7f\x9b\u2028\u202e")
    assert escaped == "a\\x1b[31m\\n\\t\\x00\\x7f\\x9b\\u2028\\u202e"
    assert escape_controls("a\n\tb\r", keep="\n\t") == "a\n\tb\\r"


def test_tables_texts_and_labels_escape_control_characters() -> None:
    out = io.StringIO()
    print_table(console(out), ("class\x1b[1m".replace("\x1b[1m", ""), "n"), [["red\x1b[31m", 3]])
    console(out).print("two\nlines of \x1b]0;title\x07")
    assert "red\\x1b[31m" in out.getvalue() and "two\nlines of \\x1b]0;title\\x07" in out.getvalue()
    assert "\x1b" not in out.getvalue()
    assert labels_txt({0: "a\nb", 1: "c\x1b[31md", 2: "e\tf"}) == "0:a\\nb\n1:c\\x1b[31md\n2:e\tf\n"


def test_the_title_of_a_table_is_one_line() -> None:
    out = io.StringIO()
    print_table(console(out), ("class",), [["a"]], title="  Vanished classes")
    assert out.getvalue().startswith("  Vanished classes\n")


@pytest.mark.parametrize(
    "file", ["train\x00-00000-of-00001.tfrecord", "train\x1b[31m.tfrecord", "../other/train.tfrecord"]
)
def test_shard_names_with_control_characters_or_folders_are_refused(file: str) -> None:
    document = {"format_version": 1, "splits": {"train": {"shards": [{"file": file}]}}}
    message = r"^x/dataset\.json lists a shard '.*', a name that no shard has"
    with pytest.raises(UsageError, match=message):
        Dataset.from_bytes(json.dumps(document).encode(), "x/dataset.json")


def test_addresses_are_left_out() -> None:
    with pytest.raises(OSError, match="0x") as caught:
        Image.open(io.BytesIO(b"no picture"))
    assert words_of(caught.value) == "cannot identify image file"
    assert words_of(ValueError("<function <lambda> at 0x7f8a00> failed")) == "<function <lambda> > failed"
    assert words_of(ValueError("unsupported marker 0xd8")) == "unsupported marker 0xd8"


@pytest.mark.parametrize(
    "path", ["/var/tmp/tmpa1b2c3d4", "/data/out/_work/spool/0123", "out/_work/spool/0123"]
)
def test_names_of_temporary_files_are_left_out(path: str) -> None:
    words = words_of(OSError(f"cannot open '{path}': no magic bytes"))
    assert words == "cannot open 'its file': no magic bytes"
    assert words_of(OSError("cannot open '/data/tmp/a.png'")) == "cannot open '/data/tmp/a.png'"


def test_a_text_has_one_line_that_is_not_too_long() -> None:
    assert words_of(zipfile.BadZipFile("a\n  b\t")) == "a b"
    assert words_of(EOFError()) == "EOFError"
    assert len(words_of(ValueError("x" * 1000))) == 200
