"""`shardwright diff`: with and without Beam, limits as a gate, and wrong input."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.resealing import read_document, write_document
from helpers.trees import put_files

from shardwright.pipelines import diff as pipeline
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.diff import DiffResult, diff, print_diff
from shardwright.schemas.drift import Changes, Kind
from shardwright.schemas.errors import UsageError
from shardwright.schemas.findings import ValidationReport

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def edited(sound_dataset: Path, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The photos with a few edits, converted with the plan of the sound dataset."""
    root = tmp_path_factory.mktemp("edited")
    source = Path(shutil.copytree(photos, root / "in"))
    (source / "birds" / "owl.jpg").unlink()
    (source / "birds" / "eagle.jpg").rename(source / "buildings" / "eagle.jpg")
    shutil.copy(source / "birds" / "dove.png", source / "birds" / "canary.png")
    (source / "new 'class' <b>").mkdir()
    shutil.copy(source / "birds" / "turkey.png", source / "new 'class' <b>" / "x\n.png")
    (source / "birds" / "rooster.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    shared: dict[str, Any] = {"resize": 64, "plan_from": str(sound_dataset), "max_bad_fraction": 0.5}
    convert(input=str(source), output=str(root / "out"), verify="none", **shared)
    return root / "out"


@pytest.fixture(scope="module")
def result(sound_dataset: Path, edited: Path) -> DiffResult:
    return diff(str(sound_dataset), str(edited))


def listed(result: DiffResult, kind: Kind) -> list[tuple[str, ...]]:
    return [tuple(change) for change in result.drift.changes.listed.get(kind.value, ())]


def test_each_edit_is_reported_and_nothing_else(result: DiffResult) -> None:
    changes = result.drift.changes
    assert {kind: changes.total(kind) for kind in Kind if changes.total(kind)} == {
        Kind.ADDED: 1, Kind.REMOVED: 2, Kind.RENAMED: 1, Kind.CHANGED: 1, Kind.RELABELLED: 1, Kind.MOVED: 1
    }  # fmt: skip
    assert changes.unchanged == 57
    ((added, why, _),) = listed(result, Kind.ADDED)
    assert (added, why) == ("new 'class' <b>/x\n.png", "")
    (gone, _, no_reason), (left_out, _, reason) = listed(result, Kind.REMOVED)
    assert (gone, no_reason, left_out) == ("birds/owl.jpg", "", "birds/rooster.png")
    assert reason.startswith("quarantined: ")
    assert listed(result, Kind.RENAMED) == [("buildings/eagle.jpg", "birds/eagle.jpg", "buildings/eagle.jpg")]
    assert listed(result, Kind.RELABELLED) == [("buildings/eagle.jpg", "birds", "buildings")]
    assert [key for key, *_ in listed(result, Kind.CHANGED)] == ["birds/canary.png"]
    assert result.drift.records.all == (61, 60)
    assert result.drift.classes.new == ("new 'class' <b>",)
    assert result.passed and not result.drift.identical


def test_the_differences_are_printed(result: DiffResult, capsys: Capture) -> None:
    print_diff(result)
    out = " ".join(capsys.readouterr().out.split())
    for text in ("birds/eagle.jpg ->", "new 'class' <b>", r"x\n.png", "birds buildings 1", "unchanged 57"):
        assert text in out


def test_a_gate_file_decides_the_exit_code(
    sound_dataset: Path, edited: Path, tmp_path: Path, capsys: Capture
) -> None:
    """It has limits of the differences, and requirements of the new dataset."""
    gates, report = tmp_path / "gates.yaml", tmp_path / "report.json"
    arguments = ["diff", str(sound_dataset), str(edited), f"--thresholds={gates}", f"--report={report}"]
    gates.write_text(
        "max_removed_fraction: 0.05\nnew_classes: warn\nmin_images: 50\nmin_width: 9999\nfail_on: [DARK]\n"
    )
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert "warning: new_classes: 1" in out
    ignored = "diff reads no shards, so it ignores fail_on and warn_on, min_width; use shardwright"
    assert f"{gates}: {ignored}" in err
    gates.write_text(
        "max_removed_fraction: 0.01\nmax_added_fraction: 0\nnew_classes: warn\nmax_rise: {DARK: 0}\n"
        "min_images: 500\nallowed_classes: [birds]\n"
    )
    assert main(arguments) == 1
    refused = [line.split()[1] for line in capsys.readouterr().out.splitlines() if "refused: " in line]
    drift = ["max_added_fraction:", "max_removed_fraction:", "max_rise:"]
    assert refused == [*drift, "min_images:", "allowed_classes:"]
    stored = json.loads(report.read_text())
    assert not stored["passed"] and len(stored["refusals"]) == 6
    assert (stored["thresholds"]["max_added_fraction"], stored["thresholds"]["min_images"]) == (0, 500)
    assert set(stored["refusals"][0]) == {"name", "value", "limit", "severity", "message"}


def test_equal_datasets_are_identical_and_no_ledger_is_read(
    sound_dataset: Path, tmp_path: Path, capsys: Capture
) -> None:
    other = Path(shutil.copytree(sound_dataset, tmp_path / "other"))
    shutil.rmtree(other / "_shards")
    assert main(["diff", str(sound_dataset), str(other)]) == 0
    assert "are identical: 61 records" in capsys.readouterr().out
    found = diff(str(sound_dataset), str(other), {"min_images": 61, "max_rise": {"DARK": 0}})
    assert found.passed and found.drift.identical
    assert found.drift.changes == Changes(unchanged=61)


def test_a_dataset_that_does_not_name_its_layout_is_compared(
    sound_dataset: Path, edited: Path, result: DiffResult, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(edited, tmp_path / "copy"))
    document = read_document(copy)
    del document["plan"]["settings"]["layout"]
    write_document(copy, document)
    assert diff(str(sound_dataset), str(copy)).drift.changes == result.drift.changes


def test_statistics_and_findings_are_compared(
    sound_dataset: Path, edited: Path, tmp_path: Path, capsys: Capture
) -> None:
    def measured(dataset: Path, name: str, dark: int, mean: float) -> str:
        """Copies a dataset and adds the files of a validation."""
        copy = Path(shutil.copytree(dataset, tmp_path / name))
        fingerprint = read_document(copy)["fingerprint"]
        counts = {"DARK": dark} if dark else {}
        report = ValidationReport(name, "quality", fingerprint, 3, 60, 1, counts, ())
        numbers = {"scores": {"brightness": {"mean": mean}}, "boxes": {"per_image": {"mean": mean}}}
        statistics = {"fingerprint": fingerprint, "total": {"all": numbers}}
        documents = {"findings.json": report.as_json(), "statistics.json": statistics}
        return str(put_files(copy, {name: json.dumps(value) for name, value in documents.items()}))

    old, new = measured(sound_dataset, "a", 0, 100.0), measured(edited, "b", 6, 80.0)
    found = diff(old, new, {"max_rise": {"DARK": 0.05}, "max_statistics_change": {"brightness.mean": 0.1}})
    assert found.drift.quality["DARK"] == (0.0, 0.1)
    names = ("boxes.per_image.mean", "scores.brightness.mean")
    assert found.drift.statistics == {f"total.all.{name}": (100.0, 80.0) for name in names}
    assert [refusal.name for refusal in found.refusals] == ["max_rise", "max_statistics_change"]
    print_diff(found)
    out = capsys.readouterr().out
    assert all(text in out for text in (*names, "DARK", "10.0000%"))
    Path(new, "statistics.json").write_text('{"total": {"all": {"records": 61}}}')
    assert diff(old, new).drift.statistics["total.all.scores.brightness.mean"] == (100.0, None)
    document = Path(old, "findings.json")
    document.write_text(json.dumps({"fingerprint": "of another build"}))
    assert diff(old, new).drift.quality["DARK"] == (None, 0.1)
    for damaged in ("{", json.dumps({"fingerprint": found.drift.fingerprints.old})):
        document.write_text(damaged)
        with pytest.raises(UsageError, match=r"findings.json is damaged; run shardwright validate"):
            diff(old, new)


def test_wrong_ledgers_are_reported_in_a_sentence(
    sound_dataset: Path, edited: Path, tmp_path: Path, capfd: Capture
) -> None:
    broken = Path(shutil.copytree(edited, tmp_path / "broken"))
    ledger = broken / "_shards" / "train-00001-of-00003.jsonl.gz"
    whole = ledger.read_bytes()
    lines = gzip.decompress(whole).splitlines(keepends=True)
    for content, message in (
        (None, "is missing"),
        (gzip.compress(b"".join([*lines[:-1], lines[-2]])), "twice"),
        (gzip.compress(b"".join([*lines, lines[-1]])), "more lines than its header counts"),
    ):
        ledger.unlink(missing_ok=True)
        if content is not None:
            ledger.write_bytes(content)
        assert main(["diff", str(sound_dataset), str(broken)]) == 2
        error = capfd.readouterr().err
        assert message in error and len(error.strip().splitlines()) == 1


def test_the_result_is_that_of_beam(
    sound_dataset: Path, edited: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "run_for_result", None)
        small = [diff(sound_dataset, edited), diff(edited, sound_dataset)]
        with pytest.raises(TypeError):  # somebody who gives options for Beam gets it
            diff(sound_dataset, edited, beam_options=["--direct_num_workers=1"])
    monkeypatch.setattr(pipeline, "MAX_RECORDS", 0)
    assert small == [diff(sound_dataset, edited), diff(edited, sound_dataset)]
    kinds = {kind for kind, _ in small[0].drift.changes.counts}
    assert {"added", "removed", "renamed", "changed", "relabelled", "moved"} <= kinds
