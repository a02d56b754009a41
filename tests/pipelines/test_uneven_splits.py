"""Classes whose share differs between splits, or that a split lacks: plan, convert and the report warn."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest
from PIL import Image

from shardwright.pipelines import plan, report
from shardwright.pipelines.cli import main

Capture = pytest.CaptureFixture[str]

COUNTS = {
    "train": {"hats": 58, "shoes": 3, "bags": 4},
    "test": {"hats": 8, "shoes": 16},
}
UNEVEN = (
    "1 of 3 classes differs between splits: 'shoes' is 67% of test (16 of 24) but 4.6% of train (3 of 65)."
)
MISSING = "Split test has no image of 1 of 3 classes: 'bags'."


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small pictures in split and class folders, with far more shoes in the test split."""
    root = tmp_path_factory.mktemp("uneven")
    for split, counts in COUNTS.items():
        for name, count in counts.items():
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                color = (number, len(name), len(split))
                Image.new("RGB", (9 + number, 8), color).save(root / split / name / f"{number}.png")
    return root


def test_plan_warns_before_anything_is_written(uneven: Path, capsys: Capture) -> None:
    assert main(["plan", "--input", str(uneven)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"warning: {UNEVEN}" in out and f"warning: {MISSING}" in out
    assert main(["plan", "--input", str(uneven), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["warnings"] == [UNEVEN, MISSING]
    assert printed["split_class_counts"] == {name: dict(sorted(c.items())) for name, c in COUNTS.items()}
    assert printed["splits_from"] == "source"


def test_convert_and_the_report_state_the_same_numbers(uneven: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    assert main(["convert", "--input", str(uneven), "--output", str(out)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"warning: {UNEVEN}" in printed and f"warning: {MISSING}" in printed
    data = report.report(out).data
    assert data.balance.sentences == [UNEVEN, MISSING]
    page = html.unescape((out / "report.html").read_text())
    assert UNEVEN in page and MISSING in page


def test_a_limit_counts_only_the_images_that_it_takes(uneven: Path) -> None:
    forecast = plan.plan(input=uneven, limit=40)
    assert sum(sum(counts.values()) for counts in forecast.split_class_counts.values()) == 40
