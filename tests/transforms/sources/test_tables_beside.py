"""Tables beside images whose folders give no classes: the command stops and says how to read them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.listing import put_photos
from helpers.records import balanced, labels_by_key

from shardwright.pipelines.cli import main

_ROWS = "filename,label\neagle.jpg,bird\napple.jpg,fruit\n"


def _flat(root: Path) -> None:
    put_photos(root, ["eagle", "apple"])
    (root / "ann.csv").write_text(_ROWS)


def _beside_a_folder(root: Path) -> None:
    put_photos(root / "images", ["eagle", "apple"])
    (root / "ann.csv").write_text(_ROWS.replace(",", ";"))


def _celeba(root: Path) -> None:
    put_photos(root / "Img" / "img_align", ["eagle", "apple"])
    (root / "Anno").mkdir()
    (root / "Anno" / "attributes.csv").write_text("image_id,Kind\neagle.jpg,bird\napple.jpg,fruit\n")


def _json_lines(root: Path) -> None:
    put_photos(root / "images", ["eagle", "apple"])
    rows = [{"image": "images/eagle.jpg", "label": "bird"}, {"image": "images/apple.jpg", "label": "fruit"}]
    (root / "ann.jsonl").write_text("\n".join(map(json.dumps, rows)))


def _without_header(root: Path) -> None:
    put_photos(root / "train", ["eagle", "apple"])
    (root / "ann.tsv").write_text("eagle.jpg\tbird\napple.jpg\tfruit\n")


@pytest.mark.parametrize("put", [_flat, _beside_a_folder, _celeba, _json_lines, _without_header])
def test_the_command_stops_and_says_how_to_read_the_table(
    tmp_path: Path, put: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    root, output = tmp_path / "in", tmp_path / "out"
    root.mkdir()
    put(root)
    assert main(["convert", "--input", str(root), "--output", str(output)]) == 2
    error = capsys.readouterr().err
    found = re.search(r"names its images, .*; write (.*?), or --source class_folders if it is to be", error)
    assert found, error
    options = found[1].replace("COLUMN (Kind)", "Kind").split()
    assert main(["convert", "--output", str(output), *options]) == 0
    names = {Path(key).name: label for key, label in labels_by_key(output).items()}
    assert names == {"eagle.jpg": "bird", "apple.jpg": "fruit"}


def test_several_tables_are_all_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, output = tmp_path / "in", tmp_path / "out"
    _beside_a_folder(root)
    for name in ("ann2.csv", "ann3.csv"):
        (root / name).write_text(_ROWS)
    (root / "notes.csv").write_text("day,weather\n1,sun\n")
    assert main(["convert", "--input", str(root), "--output", str(output)]) == 2
    error = capsys.readouterr().err
    for name in ("ann.csv", "ann2.csv", "ann3.csv"):
        assert f"--input {root / name} --image_root {root / 'images'}, or " in error
    assert "notes.csv" not in error and not output.exists()
    args = ["convert", "--input", str(root), "--output", str(output), "--source", "class_folders"]
    assert main(args) == 0
    ledger = json.loads((output / "dataset.json").read_text())["ledger"]
    assert balanced(ledger) and ledger["filtered"] == 4


def test_class_folders_with_a_table_are_class_folders(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for name in ("eagle", "apple"):
            put_photos(tmp_path / "in" / split / name, [name])
    (tmp_path / "in" / "birds.csv").write_text("path,label\ntrain/eagle/eagle.jpg,bird\n")
    assert main(["convert", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]) == 0
    assert Counter(labels_by_key(tmp_path / "out").values()) == {"eagle": 2, "apple": 2}


def test_two_tables_of_boxes_for_one_image_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put_photos(tmp_path / "images", ["eagle", "apple"])
    for name in ("ann.csv", "ann2.csv"):
        (tmp_path / name).write_text("filename,class,xmin,ymin,xmax,ymax\neagle.jpg,bird,1,1,9,9\n")
    args = ["--layout", "detection", "--output", str(tmp_path.with_name("out"))]
    assert main(["convert", "--input", str(tmp_path), *args]) == 2
    advice = f"write --input {tmp_path / 'ann.csv'} or --input {tmp_path / 'ann2.csv'}."
    assert advice in capsys.readouterr().err


def test_two_metadata_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put_photos(tmp_path, ["eagle"])
    (tmp_path / "metadata.csv").write_text("file_name,label\neagle.jpg,bird\n")
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "eagle.jpg", "label": "owl"}\n')
    assert main(["convert", "--input", str(tmp_path), "--output", str(tmp_path.with_name("out"))]) == 2
    advice = f"write --input {tmp_path / 'metadata.csv'} or --input {tmp_path / 'metadata.jsonl'}."
    assert advice in capsys.readouterr().err
