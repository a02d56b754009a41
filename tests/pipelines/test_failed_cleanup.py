"""Failures after the work is done are warnings: the dataset exists, and the exit code says so."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from shardwright.pipelines import cli
from shardwright.pipelines import convert as convert_module
from shardwright.pipelines.run import run_pipeline
from shardwright.schemas.errors import EngineError
from shardwright.transforms import commit, dataset_files
from shardwright.transforms.sources.spool import Spool

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    path = tmp_path / "in" / "cat" / "1.png"
    path.parent.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(path)
    return ["convert", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]


def _refuse(*_: Any) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_work_files_that_cannot_be_removed_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path, argv: list[str]
) -> None:
    monkeypatch.setattr(Spool, "remove", _refuse)
    monkeypatch.setattr(dataset_files, "remove_temporary", _refuse)
    assert cli.main(argv) == 0
    out = capsys.readouterr().out
    assert out.count("warning: Some work files are left and can be removed by hand: Cannot clean up") == 2
    assert json.loads((tmp_path / "out" / "dataset.json").read_text())["ledger"]["written"] == 1


def test_a_staging_directory_that_cannot_be_removed_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path, argv: list[str]
) -> None:
    assert cli.main(argv) == 0
    capsys.readouterr()
    monkeypatch.setattr(commit, "discard_staging", _refuse)
    assert cli.main([*argv, "--overwrite"]) == 0
    out = capsys.readouterr().out
    assert "warning: Some work files are left" in out
    outcome = json.loads((tmp_path / "out" / "_work" / "outcome.json").read_text())
    assert outcome["warnings"][-1].startswith("Some work files are left")


def test_an_engine_that_fails_after_the_commit_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, argv: list[str]
) -> None:
    def run(build: Any, options: Any) -> Any:
        run_pipeline(build, options)
        raise EngineError("The engine could not remove its files; look at the disk.")

    monkeypatch.setattr(convert_module, "run_pipeline", run)
    assert cli.main(argv) == 0
    out = capsys.readouterr().out
    assert "warning: The dataset is published and complete; after that the run failed: The engine" in out


def test_an_engine_that_fails_before_the_commit_is_an_error_despite_an_older_dataset(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, argv: list[str]
) -> None:
    assert cli.main(argv) == 0

    def run(build: Any, options: Any) -> Any:
        raise EngineError("The engine failed; look at the disk.")

    monkeypatch.setattr(convert_module, "run_pipeline", run)
    assert cli.main([*argv, "--overwrite"]) == 3
