"""Validation as a gate: codes that fail or only warn, expectations, and data that was not read."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from helpers.repository import PHOTOS

from shardwright.core.report.gather import read_report, select_findings
from shardwright.core.report.render import verdict_of
from shardwright.pipelines import prepare
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.findings_text import print_findings
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.validate import validate
from shardwright.schemas.check_depths import CheckDepth
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.findings import Finding, ValidationReport, with_previous_checks


@pytest.fixture(scope="module")
def dataset(sound_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sound dataset, whose reports these tests overwrite."""
    return Path(shutil.copytree(sound_dataset, tmp_path_factory.mktemp("gates") / "dataset"))


def run(dataset: Path, *options: str) -> int:
    return main(["validate", "--dataset", str(dataset), "--fast", *options])


def test_expectations_decide_the_exit_code_and_are_in_both_reports(dataset: Path, tmp_path: Path) -> None:
    expected, junit = tmp_path / "expectations.yaml", tmp_path / "out.xml"
    expected.write_text("min_images: 61\nmin_images_per_class: 12\nallowed_formats: [jpeg]\n")
    assert run(dataset, "--expect", str(expected), "--junit", str(junit)) == 0
    (suite,) = ElementTree.parse(junit).getroot()
    assert suite.attrib["failures"] == "0"
    expected.write_text("min_images: 62\nmin_images_per_class: 12\nmin_images_per_split: {test: 1000}\n")
    assert run(dataset, "--expect", str(expected), "--junit", str(junit)) == 1
    (suite,) = ElementTree.parse(junit).getroot()
    failed = {case.attrib["name"] for case in suite if case.find("failure") is not None}
    assert failed == {"min_images", "min_images_per_split"}
    report = json.loads((dataset / "findings.json").read_text())
    assert report["counts"] == {"EXPECTATION": 2}
    assert report["findings"][0]["message"] == "min_images: it has 61 images, less than 62"
    assert run(dataset, "--expect", str(expected), "--warn_on", "EXPECTATION") == 0


def test_a_gate_file_may_name_findings_and_limits_on_differences_are_ignored(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy, gates = Path(shutil.copytree(dataset, tmp_path / "copy")), tmp_path / "gates.yaml"
    (copy / "parse.py").unlink()
    gates.write_text(
        "warn_on: [SIDECAR_MISMATCH]\nmax_count_drop: 0.1\nnew_classes: refuse\nmax_bad_fraction: 0.5\n"
    )
    assert run(copy, "--expect", str(gates)) == 0
    err = capsys.readouterr().err
    assert f"{gates}: max_count_drop, new_classes compare two datasets, so they are ignored here; use" in err
    assert run(copy, "--expect", str(gates), "--fail_on", "SIDECAR_MISMATCH") == 1, "options count more"
    gates.write_text("# nothing\n")
    assert run(copy, "--expect", str(gates)) == 2
    assert f"--expect {gates} has no gates; write one on each line" in capsys.readouterr().err


def test_gates_change_errors_to_warnings_and_back(dataset: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(dataset, tmp_path / "copy"))
    (copy / "parse.py").unlink()
    assert run(copy) == 1
    assert run(copy, "--warn_on", "SIDECAR_MISMATCH") == 0
    report = validate(str(copy), mode="fast", warn_on=["SIDECAR_MISMATCH"])
    assert (report.sound, report.errors, report.warnings) == (True, 0, 1)
    assert validate(str(copy), mode="fast", fail_on=["SIDECAR_MISMATCH"]).errors == 1
    # The dataset may be a path object or a text.
    assert validate(copy, mode="fast", warn_on=" sidecar_mismatch").warnings == 1


def test_a_gate_on_image_quality_measures_every_picture(dataset: Path, tmp_path: Path) -> None:
    expected = tmp_path / "expectations.yaml"
    expected.write_text("min_width: 64\nmax_height: 64\n")
    report = validate(str(dataset), expect=str(expected))
    assert (report.mode, report.errors) == ("quality", 0)
    expected.write_text("min_width: 65\n")
    report = validate(str(dataset), expect=str(expected))
    assert report.counts["EXPECTATION"] == 1
    assert validate(str(dataset), warn_on=["DARK"]).mode == "quality"


def test_nothing_is_read_if_nothing_can_be_written(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # like on a read-only file system
    monkeypatch.setattr("shardwright.pipelines.prepare.run_pipeline", lambda *_: pytest.fail("it ran"))
    assert run(dataset) == 3
    err = capsys.readouterr().err
    assert "findings.json" in err and "choose another place with --report" in err


def test_the_help_lists_every_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["validate", "--help"])
    words = set(capsys.readouterr().out.replace(",", " ").split())
    assert words >= set(FindingCode)


def test_names_that_could_control_a_terminal_are_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    finding = Finding(FindingCode.DATA_CRC, "wrong\x1b]0;x\x07", "s\x1b[2J", 1, 2, "a\nb\x9b31m")
    print_findings(ValidationReport("d\x1b[1m", "fast", None, 1, 1, 1, {"DATA_CRC": 1}, (finding,)))
    out = capsys.readouterr().out
    assert not any(char in out for char in "\x1b\x07\x9b")
    assert "a\\nb" in out and "\\x1b[2J" in out


FINGERPRINT = "a" * 64


def report_of(depth: CheckDepth, *findings: Finding, time: str = "") -> ValidationReport:
    counts = {finding.code.value: 1 for finding in findings}
    return ValidationReport("out", depth.word, FINGERPRINT, 1, 2, 3, counts, tuple(findings), time=time)


def verdict(document: dict[str, Any]) -> tuple[str, str]:
    read = select_findings(read_report(document), FINGERPRINT, "")
    assert read is not None
    found = verdict_of(read)
    return found.text, found.tone


@pytest.mark.parametrize("depth", CheckDepth)
def test_only_data_that_was_read_is_sound(depth: CheckDepth, capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(depth)
    known = None if depth is CheckDepth.NONE else True
    assert report.sound is known and report.passed
    document = report.as_json()
    assert document["sound"] is known and document["passed"] is True
    assert ValidationReport.from_json(document) == report
    assert verdict(document) == (("✓ Sound", "good") if known else ("? Not verified", "unknown"))
    print_findings(report)
    out = capsys.readouterr().out
    assert ("out: Sound" in out) == bool(known) and ("out: not verified" in out) != bool(known)


def test_an_error_counts_even_if_nothing_was_read() -> None:
    missing = Finding(FindingCode.SHARD_MISSING, "the file is missing", "train-00000-of-00001.tfrecord")
    report = report_of(CheckDepth.NONE, missing)
    assert report.sound is False and not report.passed
    assert verdict(report.as_json()) == ("✗ Not sound", "bad")


def test_reading_by_an_earlier_check_counts() -> None:
    earlier = report_of(CheckDepth.FULL, time="2026-11-01T00:00:00Z").as_json()
    report = with_previous_checks(report_of(CheckDepth.NONE, time="2026-11-02T00:00:00Z"), [earlier])
    assert report.sound is True and verdict(report.as_json()) == ("✓ Sound", "good")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("command", [convert, rebuild])
@pytest.mark.parametrize(("verify", "depth", "sound"), [("none", "none", None), ("fast", "frames", True)])
def test_a_new_dataset_states_the_depth_of_its_check(
    tmp_path: Path, command: Any, verify: str, depth: str, sound: bool | None
) -> None:
    made = command(input=str(PHOTOS), output=str(tmp_path / "out"), resize=8, limit=5, verify=verify)
    stored = json.loads((Path(made.path) / "findings.json").read_text())
    assert (stored["mode"], stored["depth"], stored["sound"]) == (depth, depth, sound)
    assert stored["passed"] is True
    if command is rebuild:
        page = (Path(made.path) / "report.html").read_text()
        assert ("Not verified" in page) == (sound is None) and ("✓ Sound" in page) == bool(sound)
    fast = validate(made.path, mode="fast")
    assert (fast.mode, fast.run.check_depth, fast.sound) == ("fast", CheckDepth.FAST, True)


def test_a_version_published_during_a_validation_does_not_change_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "out")
    first, second = (rebuild(input=str(PHOTOS), output=output, resize=8, limit=limit) for limit in (5, 4))
    assert main(["rollback", output, "--to", first.version]) == 0
    run = prepare.run_pipeline

    def then_publish(build: Any, options: Any) -> Any:
        result = run(build, options)
        assert main(["rollback", output, "--to", second.version]) == 0
        return result

    monkeypatch.setattr(prepare, "run_pipeline", then_publish)
    capsys.readouterr()
    assert main(["validate", output, "--quality"]) == 0
    out = capsys.readouterr().out
    assert f"{first.version}/report.html" in out and f"{second.version}/report.html" not in out
    assert [line.split()[1] for line in out.splitlines() if line.split()[:1] == ["train"]] == ["5"]
