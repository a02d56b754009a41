"""The forecast of `plan`, also for files without a split and for classes that begin at 1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.repository import PHOTOS

from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.plan import plan

Capture = pytest.CaptureFixture[str]


def _rows(out: str) -> list[list[str]]:
    return [line.split() for line in out.splitlines() if line.strip()]


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """A manifest of 20 photos, and 200 rows that name no photo."""
    photos = sorted(PHOTOS.rglob("*.*"))[:20]
    lines = ["image,label", *(f"{path},{path.parent.name}" for path in photos), *[",x"] * 200]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "rows.csv"


def test_rows_without_an_image_are_shown_apart_from_the_splits(manifest: Path, capsys: Capture) -> None:
    assert main(["plan", "--input", str(manifest), "--resize=16"]) == 0
    rows = _rows(capsys.readouterr().out)
    assert ["none", "200", "0", "0"] in rows
    assert ["train", "20", "20", "1"] in [row[:4] for row in rows]


def test_a_trial_run_has_its_share_of_bad_rows(manifest: Path, tmp_path: Path) -> None:
    settings = {"input": manifest, "resize": 16, "limit": 3, "max_bad_fraction": 0.99}
    made = convert(output=tmp_path / "out", **settings)
    ledger = made.dataset.ledger
    assert (ledger["listed"], ledger["written"]) == (220, 3)
    assert 0 < ledger["quarantined"] < 200
    assert (
        ledger["reasons"]["filtered"] == plan(**settings).filtered == {"limit": 217 - ledger["quarantined"]}
    )
    assert made.metrics["files_quarantined"] == ledger["quarantined"] == made.metrics["quarantined_BAD_ROW"]
    assert "records_none" not in made.metrics


def test_ids_of_detection_begin_at_one_and_images_are_counted(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "in").mkdir()
    for number, path in enumerate(sorted((PHOTOS / "fruit").iterdir())[:3], 1):
        (tmp_path / "in" / f"{number}{path.suffix}").write_bytes(path.read_bytes())
    names = [path.name for path in sorted((tmp_path / "in").iterdir())]
    boxes = [(1, 1), (1, 1), (1, 2), (2, 2)]  # image, category
    document = {
        "images": [{"id": i, "file_name": name} for i, name in enumerate(names, 1)],
        "categories": [{"id": 1, "name": "pip"}, {"id": 2, "name": "stalk"}],
        "annotations": [
            {"id": n, "image_id": image, "category_id": category, "bbox": [1, 1, 5, 5], "iscrowd": 0}
            for n, (image, category) in enumerate(boxes, 1)
        ],
    }
    (tmp_path / "in" / "boxes.json").write_text(json.dumps(document))
    assert main(["plan", "--input", str(tmp_path / "in" / "boxes.json"), "--layout=detection"]) == 0
    rows = _rows(capsys.readouterr().out)
    assert ["1", "pip", "1"] in rows and ["2", "stalk", "2"] in rows


def test_copies_are_left_out_whatever_objects_they_have(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / "in" / name).write_bytes((PHOTOS / "fruit" / "apple.jpg").read_bytes())
    document = {
        "images": [{"id": 1, "file_name": "a.jpg"}, {"id": 2, "file_name": "b.jpg"}],
        "categories": [{"id": 1, "name": "apple"}, {"id": 2, "name": "worm"}],
        "annotations": [
            {"id": n, "image_id": image, "category_id": category, "bbox": [1, 1, 5, 5]}
            for n, (image, category) in enumerate([(1, 1), (1, 2), (2, 1), (2, 2)], 1)
        ],
    }
    (tmp_path / "in" / "boxes.json").write_text(json.dumps(document))
    (tmp_path / "names.txt").write_text("1:apple\n")
    made = convert(
        input=tmp_path / "in" / "boxes.json",
        output=tmp_path / "out",
        layout="detection",
        class_names=tmp_path / "names.txt",
        dedupe="exact",
    )
    assert (made.dataset.ledger["written"], made.dataset.ledger["deduplicated"]) == (1, 1)
