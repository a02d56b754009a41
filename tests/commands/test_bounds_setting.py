"""`--bounds` decides which images are in a dataset, and the dataset records it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import oversized

from shardwright.pipelines.cli import main

RAISED = "TOO_MANY_SEGMENTS=70000"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "in" / "a"
    folder.mkdir(parents=True)
    (folder / "usual.jpg").write_bytes(oversized.jpeg_of_segments(1))
    (folder / "long.jpg").write_bytes(oversized.jpeg_of_segments(1 << 16))
    return folder.parent


def _convert(source: Path, output: Path, *more: str) -> tuple[int, dict[str, Any], list[dict[str, Any]]]:
    code = main(["convert", str(source), str(output), "--max_bad_fraction=1", *more])
    lines = (output / "quarantine.jsonl").read_text().splitlines()
    return code, json.loads((output / "dataset.json").read_text()), [json.loads(line) for line in lines]


def test_a_raised_bound_accepts_the_image_and_is_recorded(pictures: Path, tmp_path: Path) -> None:
    code, usual, left_out = _convert(pictures, tmp_path / "usual")
    assert code == 0 and [line["reason"] for line in left_out] == ["TOO_MANY_SEGMENTS"]
    assert "raise --bounds TOO_MANY_SEGMENTS=65536" in left_out[0]["message"]
    assert "bounds" not in usual["settings"]
    code, raised, left_out = _convert(pictures, tmp_path / "raised", f"--bounds={RAISED}")
    assert code == 0 and not left_out and raised["settings"]["bounds"] == RAISED
    assert main(["validate", str(tmp_path / "raised")]) == 0
    code, same, _ = _convert(pictures, tmp_path / "same", "--bounds=TOO_MANY_SEGMENTS=65536")
    assert same["fingerprint"] == usual["fingerprint"] != raised["fingerprint"]
    assert same["settings"] == usual["settings"]


@pytest.mark.slow
def test_a_job_file_may_have_a_mapping_of_bounds_and_a_plan_carries_it(
    pictures: Path, tmp_path: Path
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("bounds: {TOO_MANY_SEGMENTS: 70000}\n")
    code, made, left_out = _convert(pictures, tmp_path / "made", f"--job={job}")
    assert code == 0 and not left_out and made["settings"]["bounds"] == RAISED
    code, carried, left_out = _convert(
        pictures, tmp_path / "carried", f"--plan_from={tmp_path / 'made' / 'dataset.json'}"
    )
    assert code == 0 and not left_out and carried["fingerprint"] == made["fingerprint"]


@pytest.mark.parametrize("text", ["TOO_MANY_CATS=1", "TOO_MANY_SCANS=0"])
def test_a_wrong_bound_ends_the_command_before_anything_is_written(
    pictures: Path, tmp_path: Path, text: str
) -> None:
    assert main(["convert", str(pictures), str(tmp_path / "out"), f"--bounds={text}"]) == 2
    assert not (tmp_path / "out").exists()
