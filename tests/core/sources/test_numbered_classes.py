"""`--class_names` names the classes of a source that has only numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.hostile import document, outcomes, picture, run
from helpers.manifests import write_csv
from helpers.packing import tar_of
from helpers.records import labels_by_key

from shardwright.pipelines.convert import convert

NAMES = ("cat", "dog", "emu")


@pytest.fixture
def names(tmp_path: Path) -> Path:
    file = tmp_path / "names.txt"
    file.write_text("".join(f"{name}\n" for name in NAMES))
    return file


def _webdataset(root: Path, labels: list[int]) -> Path:
    members = {}
    for i, label in enumerate(labels):
        members |= {f"{i:03d}.png": picture(i), f"{i:03d}.cls": str(label).encode()}
    (root / "a-000.tar").write_bytes(tar_of(members))
    return root / "a-000.tar"


def _csv(root: Path, labels: list[int]) -> Path:
    for i in range(len(labels)):
        (root / f"{i:03d}.png").write_bytes(picture(i))
    return write_csv(
        root / "a.csv", [("image", "label"), *((f"{i:03d}.png", k) for i, k in enumerate(labels))]
    )


def _npz(root: Path, labels: list[int]) -> Path:
    images = np.arange(len(labels) * 8 * 8 * 3, dtype=np.uint32).astype(np.uint8).reshape(-1, 8, 8, 3)
    np.savez(root / "a.npz", images=images, labels=np.array(labels))
    return root / "a.npz"


def _made(source: Path, output: Path, **settings: Any) -> list[str]:
    convert(input=str(source), output=str(output), max_bad_fraction=1, **settings)
    assert document(output)["labels"] == list(NAMES)
    return [label for _, label in sorted(labels_by_key(output).items())]


@pytest.mark.parametrize("make", [_webdataset, _csv, _npz])
def test_sources_with_numbered_classes_get_names(make: Any, names: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    source = make(tmp_path / "in", [0, 1, 2, 1, 7])
    assert _made(source, tmp_path / "out", class_names=names) == ["cat", "dog", "emu", "dog"]
    assert sorted(outcomes(tmp_path / "out").values()).count("UNKNOWN_LABEL") == 1


def test_records_with_numbered_classes_get_names(names: Path, tmp_path: Path) -> None:
    """Like TFDS's records, without a file of class names."""
    from helpers.tfrecords import write

    records = [{"image": picture(i), "label": i % 3} for i in range(6)]
    source = write(tmp_path / "in/set-train.tfrecord-00000-of-00001", records)
    labels = _made(source.parent, tmp_path / "out", class_names=names)
    assert sorted(labels) == ["cat", "cat", "dog", "dog", "emu", "emu"]


def test_validation_compares_numbered_classes_of_the_source(
    capfd: pytest.CaptureFixture[str], names: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    source = _csv(tmp_path / "in", [0, 1, 2])
    _made(source, tmp_path / "out", class_names=names)
    assert json.loads((tmp_path / "out/run.json").read_text())["listing"] == {"class_names_from": 0}
    argv = ("validate", "--dataset", tmp_path / "out", "--against")
    done = run(capfd, *argv, source)
    assert done.code == 0, done
    _csv(tmp_path / "in", [0, 2, 2])
    done = run(capfd, *argv, source)
    assert done.code == 1 and "the source says class 'emu'" in done.out, done


def test_a_source_that_counts_from_one_is_refused(
    capfd: pytest.CaptureFixture[str], names: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    source = _csv(tmp_path / "in", [1, 2, 3])
    argv = ("convert", "--input", source, "--output", tmp_path / "out", "--class_names", names)
    done = run(capfd, *argv)
    assert done.code == 2 and "counts them from 1 to 3, not from 0" in done.err, done
    assert not (tmp_path / "out/dataset.json").exists()
    _csv(tmp_path / "in", [1, 2, 2])
    done = run(capfd, "plan", "--input", source, "--class_names", names)
    assert "No image has the class number 0 ('cat')" in done.out + done.err, done
