"""Images inside Parquet and Arrow files are converted, compared with their source, and rebuilt."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from helpers.embedded import HUGGING_FACE, png, table_of, write_arrow, write_parquet
from helpers.from_nothing import Rebuilt, unchanged, work
from helpers.records import examples, value
from PIL import Image

from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert

_IMAGES = [png(number) for number in range(30)]
_LABELS = [("cat", "dog", "eel")[number % 3] for number in range(30)]


@pytest.mark.parametrize("name", ["saved", "hub"])
def test_a_dataset_of_hugging_face_is_converted(tmp_path: Path, name: str) -> None:
    made = convert(input=HUGGING_FACE / name, output=tmp_path / "out", layout="detection")
    assert {split: len(found) for split, found in examples(tmp_path / "out").items()} == {
        "train": 4,
        "test": 2,
    }
    assert made.dataset.labels == ("eye", "nose")
    for split, records in examples(tmp_path / "out").items():
        for record in records:
            number = int(value(record, "image/filename").rpartition("!")[2]) + (4 if split == "test" else 0)
            with Image.open(io.BytesIO(value(record, "image/encoded"))) as image:
                assert image.size == (20 + number, 10)
                assert np.array_equal(np.unique(image), np.unique([40 * number, 0]))
            assert value(record, "image/object/class/text") == ("eye", "nose")[number % 2]


@pytest.mark.slow
def test_only_changed_rows_are_converted_again(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "rows.parquet", table_of(_IMAGES, label=_LABELS), row_group_size=7)
    rebuilt = Rebuilt(tmp_path / "out", input=str(source), shards="2")
    rebuilt.again(compared=False)
    # Without compression and with one image more, every image moves in the file.
    images = [*_IMAGES[:4], png(99), *_IMAGES[5:], png(100)]
    table = table_of(images, label=[*_LABELS, "cat"])
    write_parquet(source, table, compression="none", use_dictionary=False, row_group_size=5)
    assert work(rebuilt)[2] == 2
    assert unchanged(rebuilt)


def test_a_dataset_is_compared_with_its_rows(tmp_path: Path) -> None:
    source = write_arrow(tmp_path / "rows.arrow", table_of(_IMAGES, label=_LABELS), compression="zstd")
    convert(input=source, output=tmp_path / "out")
    assert main(["validate", "--dataset", str(tmp_path / "out"), "--against", str(source)]) == 0
    write_arrow(source, table_of([*_IMAGES[:9], png(77), *_IMAGES[10:]], label=_LABELS))
    assert main(["validate", "--dataset", str(tmp_path / "out"), "--against", str(source)]) == 1


def test_damaged_files_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    for number in range(20):
        write_parquet(tmp_path / "in" / f"{number}.parquet", table_of(_IMAGES[:2], label=_LABELS[:2]))
    last = tmp_path / "in" / "9.parquet"
    last.write_bytes(last.read_bytes()[:-20])
    assert main(["convert", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]) == 2
    assert "9.parquet cannot be read as Parquet" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
