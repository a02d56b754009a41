"""Equal bytes in two classes or two splits are reported by every command, without an option for it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.results import ConvertResult
from shardwright.pipelines.validate import validate

SPLITS = ("train", "test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two splits of two classes; one dog is also a cat, and another one is in both splits."""
    root = tmp_path_factory.mktemp("pictures")
    for split in SPLITS:
        for number in range(8):
            path = root / split / ("cat", "dog")[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng(number + 100 * len(split)).integers(0, 255, (9, 9, 3), np.uint8)
            Image.fromarray(pixels).save(path)
    shutil.copy(root / "train/dog/1.png", root / "train/cat/x.png")
    shutil.copy(root / "train/dog/3.png", root / "test/dog/y.png")
    return root


def made(folder: Path, output: Path, **settings: object) -> ConvertResult:
    return convert(input=str(folder), output=str(output), shards=2, **settings)


COUNTS = {"LABEL_CONFLICT": 1, "SPLIT_LEAKAGE": 1}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("verify", ["none", "fast", "full"])
def test_convert_reports_them_at_every_verification(folder: Path, tmp_path: Path, verify: str) -> None:
    result = made(folder, tmp_path / "out", verify=verify)
    assert result.findings == COUNTS
    warnings = [text for text in result.outcome["warnings"] if "LABEL_CONFLICT" in text]
    assert len(warnings) == 1 and "dog/1.png" in warnings[0] and "of class" in warnings[0]
    stored = json.loads((tmp_path / "out" / "findings.json").read_text())
    assert (stored["counts"], stored["warnings"], stored["sound"]) == (
        COUNTS,
        2,
        None if verify == "none" else True,
    )
    conflict = next(one for one in stored["findings"] if one["code"] == "LABEL_CONFLICT")
    assert conflict["severity"] == "warning"
    keys = {conflict["key"].rpartition("/")[2], conflict["other"]["key"].rpartition("/")[2]}
    assert keys == {"1.png", "x.png"}


def test_convert_prints_them(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "--input", str(folder), "--output", str(tmp_path / "out"), "--shards", "2"]) == 0
    out = capsys.readouterr().out
    assert "1 LABEL_CONFLICT" in out and "1 SPLIT_LEAKAGE" in out


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", ["classification", "tfds", pytest.param("raw", marks=pytest.mark.slow)])
def test_validate_reports_them_at_every_depth(folder: Path, tmp_path: Path, layout: str) -> None:
    """Also if the records do not state their sources, and only the ledgers know them."""
    output = tmp_path / "out"
    size = {"resize": "9", "image_format": "raw"} if layout == "raw" else {}
    made(folder, output, layout=layout, **size)
    for mode in ("fast", "full"):
        assert validate(output, mode=mode).counts == COUNTS
    found = validate(output, mode="quality").counts
    assert {code: found[code] for code in COUNTS} == COUNTS
    arguments = [str(output), "--fast", "--fail_on", "LABEL_CONFLICT"]
    assert main(["validate", *arguments]) == 1
    assert main(["validate", str(output), "--fast"]) == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("verify", ["none", "fast"])
def test_rebuild_reports_them(folder: Path, tmp_path: Path, verify: str) -> None:
    result = rebuild(input=str(folder / "train"), output=str(tmp_path / "out"), shards=2, verify=verify)
    assert [text for text in result.outcome["warnings"] if text.startswith("1 LABEL_CONFLICT")]
    stored = json.loads((Path(result.path) / "findings.json").read_text())
    assert stored["counts"] == {"LABEL_CONFLICT": 1}


def test_a_conversion_of_the_same_build_keeps_the_findings(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    made(folder, output)
    found = validate(output, mode="quality")
    assert found.counts["TINY_CLASS"] and found.counts["LABEL_CONFLICT"]
    result = made(folder, output, overwrite=True)
    assert result.dataset.fingerprint == found.fingerprint and result.findings == COUNTS
    stored = json.loads((output / "findings.json").read_text())
    assert stored["counts"] == found.counts
    assert [run["depth"] for run in stored["checks"]] == ["frames", "quality"]
