"""Every reading command accepts OUT (its latest version) and OUT@V; none overwrites a version."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.depths import compared
from helpers.hostile import make_tree, run, sentence_of
from helpers.listing import listed
from helpers.versioned import V1, V2, V3, V4, add_version, latest_of, point_to

from shardwright.pipelines import prepare
from shardwright.pipelines.convert import convert
from shardwright.pipelines.diff import diff
from shardwright.pipelines.report import report
from shardwright.pipelines.salvage import salvage

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Datasets of 6 and 8 pictures, with their sources."""
    root = tmp_path_factory.mktemp("datasets")
    for images in (6, 8):
        tree = make_tree(root / f"in{images}", images)
        convert(input=str(tree), output=str(root / str(images)), shards=images // 2, verify="none")
    return [root / "6", root / "8"]


@pytest.fixture
def out(tmp_path: Path, datasets: list[Path]) -> Path:
    """Versions of 6 and 8 pictures; the second one is the latest."""
    for version, dataset in zip((V1, V2), datasets):
        add_version(tmp_path / "out", dataset, version)
    point_to(tmp_path / "out", V2, V1)
    return tmp_path / "out"


def test_validate_and_report_read_versions(capfd: Capture, out: Path) -> None:
    assert run(capfd, "validate", f"{out}@{V1}", "--previous", f"{out}@{V2}").code == 0
    found = json.loads((out / "versions" / V1 / "findings.json").read_text())
    assert found["dataset"] == f"{out}@{V1}"
    assert not (out / "findings.json").exists()
    made = report(out, previous=f"{out}@{V1}")
    assert made.path == f"{out}/versions/{V2}/report.html"
    page = Path(made.path).read_text()
    assert f"{out}@{V1}" in page and "Compared with the previous version" in page


def test_diff_reads_versions(capfd: Capture, out: Path) -> None:
    found = diff(f"{out}@{V1}", out)
    assert found.drift.changes.as_json()["added"] == 2
    assert found.as_json()["datasets"] == {"old": f"{out}@{V1}", "new": f"{out}@{V2}"}
    assert diff(out, f"{out}@{V2}").drift.changes.unchanged == 8
    assert "has no version" in sentence_of(run(capfd, "diff", f"{out}@{V3}", out), 2)


def test_plan_from_accepts_versions(out: Path) -> None:
    for name, shards in ((out, 4), (f"{out}@{V1}", 3)):
        assert prepare.read_plan(str(name)).shards == {"train": shards}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("source", ["auto", "tfrecord"])
def test_a_version_can_be_a_source_and_compared_with_a_dataset(
    out: Path, tmp_path: Path, source: str
) -> None:
    old = f"old={out}@{V1}"
    made = convert(input=old, output=str(tmp_path / "made"), source=source, verify="none")
    assert made.dataset.all_records == 6
    assert json.loads((tmp_path / "made" / "run.json").read_text())["input"] == [old]
    assert not compared(tmp_path / "made", old)
    assert len(listed(out, "classification").refs) == 8


def test_salvage_reads_versions(out: Path, tmp_path: Path) -> None:
    saved = salvage(f"{out}@{V1}", tmp_path / "saved")
    assert saved.dataset is not None and saved.dataset.all_records == 6


def test_the_version_is_chosen_once(capfd: Capture, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pointer is switched while the command works, and before it reads the statistics."""
    run_pipeline = prepare.run_pipeline
    for version in (V1, V2):
        (out / "versions" / version / "findings.json").unlink(missing_ok=True)

    def moved_meanwhile(*arguments: Any) -> Any:
        point_to(out, V1)
        return run_pipeline(*arguments)

    monkeypatch.setattr(prepare, "run_pipeline", moved_meanwhile)
    done = run(capfd, "validate", out, "--quality")
    assert done.code == 0
    assert f"{V2}/report.html" in done.out and f"{V1}/report.html" not in done.out
    assert [line.split()[1] for line in done.out.splitlines() if line.split()[:1] == ["train"]] == ["8"]
    assert json.loads((out / "versions" / V2 / "findings.json").read_text())["dataset"] == f"{out}@{V2}"
    assert not (out / "versions" / V1 / "findings.json").exists()


def test_no_command_overwrites_versions(
    capfd: Capture, out: Path, tmp_path: Path, datasets: list[Path]
) -> None:
    tree = datasets[0].parent / "in6"
    before = sorted(path.relative_to(out) for path in out.rglob("*"))
    for command in ("convert", "convert --overwrite", "convert --resume", "rebuild"):
        argv = (*command.split(), "--input", tree, "--output")
        if command != "rebuild":
            assert "holds versions" in sentence_of(run(capfd, *argv, out), 2)
        for version in (f"{out}@{V1}", f"{out}@{V4}", f"{out}/versions/{V1}", f"{out}/versions/{V1}/"):
            sentence = sentence_of(run(capfd, *argv, version), 2)
            assert "only rebuilds write" in sentence and sentence.endswith(f"rebuild --output {out}.")
    message = f"is the folder of the versions; name the directory above it, {out}."
    assert sentence_of(run(capfd, *argv, f"{out}/versions"), 2).endswith(message)
    (out / "latest.json").unlink()
    done = run(capfd, "convert", "--input", tree, "--output", out, "--overwrite")
    assert "holds versions" in sentence_of(done, 2)
    point_to(out, V2)
    assert sorted(path.relative_to(out) for path in out.rglob("*")) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    assert "is not empty" in sentence_of(run(capfd, "salvage", datasets[0], "--output", out), 2)


def test_a_pointer_to_a_missing_version_is_reported(capfd: Capture, out: Path) -> None:
    shutil.rmtree(out / "versions" / V2)
    commands = [(name, out) for name in ("inspect", "validate", "report")]
    for argv in (*commands, ("diff", out, out), ("salvage", out, "--output", "x")):
        assert f"rollback {out} V" in sentence_of(run(capfd, *argv), 2)
    assert latest_of(out)["version"] == V2
