"""Small datasets are compared without Beam, with the same result."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.hostile import picture

from shardwright.pipelines import diff as pipeline
from shardwright.pipelines.convert import convert
from shardwright.pipelines.diff import diff


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Returns two datasets that differ in every way."""
    root = tmp_path_factory.mktemp("diff")
    for i in range(12):
        path = root / "in" / "abc"[i % 3] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(i))
    (root / "in" / "a" / "bad.png").write_bytes(b"\x89PNG")
    shutil.copytree(root / "in", root / "other")
    other = root / "other"
    (other / "a" / "0.png").unlink()  # removed
    (other / "a" / "new.png").write_bytes(picture(40))  # added
    (other / "a" / "3.png").rename(other / "a" / "renamed.png")
    (other / "b" / "1.png").write_bytes(picture(41))  # changed
    (other / "a" / "6.png").rename(other / "c" / "6.png")  # renamed and relabelled
    (other / "b" / "4.png").write_bytes(b"")  # quarantined
    (other / "a" / "bad.png").write_bytes(picture(42))  # good now
    settings = {"shards": "2", "splits": "train=0.5,test=0.5", "max_bad_fraction": 1.0}
    convert(input=str(root / "in"), output=str(root / "old"), **settings)
    changed = {**settings, "shards": "3", "splits": "train=0.7,test=0.3", "quality": 50}
    convert(input=str(other), output=str(root / "new"), **changed)
    return root / "old", root / "new"


def test_the_result_is_that_of_beam(
    datasets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = datasets
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "run_pipeline", None)
        small = [diff(old, new), diff(new, old)]
    monkeypatch.setattr(pipeline, "MAX_RECORDS", 0)
    assert small == [diff(old, new), diff(new, old)]
    kinds = {kind for kind, _ in small[0].drift.changes.counts}
    assert {"added", "removed", "renamed", "changed", "relabelled", "moved"} <= kinds


def test_beam_is_not_imported(datasets: tuple[Path, Path]) -> None:
    old, new = map(str, datasets)
    code = (
        "import sys; from shardwright.pipelines.cli import main; "
        f"assert main(['diff', {old!r}, {new!r}]) == 0; "
        "assert not {'apache_beam', 'tensorflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)


def test_options_of_beam_are_respected(datasets: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[bool] = []
    running = pipeline.run_pipeline
    monkeypatch.setattr(
        pipeline, "run_pipeline", lambda build, options: (ran.append(True), running(build, options))[1]
    )
    diff(*datasets, beam_options=["--direct_num_workers=1"])
    assert ran
