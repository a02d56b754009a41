"""Each depth of a check has one name, and data that was not read is called neither sound nor bad."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.repository import PHOTOS

from shardwright.pipelines import validate as command
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.findings_text import print_findings
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.validate import validate
from shardwright.schemas.check_depths import CheckDepth
from shardwright.schemas.codes import FindingCode
from shardwright.schemas.findings import Finding, ValidationReport
from shardwright.schemas.previous_checks import with_previous_checks
from shardwright.transforms.report.findings import read_validation
from shardwright.transforms.report.render import verdict_of

FINGERPRINT = "a" * 64


def report_of(depth: CheckDepth, *findings: Finding, time: str = "") -> ValidationReport:
    counts = {finding.code.value: 1 for finding in findings}
    return ValidationReport("out", depth.word, FINGERPRINT, 1, 2, 3, counts, tuple(findings), time=time)


def verdict(document: dict[str, Any]) -> tuple[str, str]:
    read = read_validation(document, FINGERPRINT, {}, "", [])
    assert read is not None
    found = verdict_of(read.checked)
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


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("verify", "depth", "sound"), [("none", "none", None), ("fast", "frames", True)])
def test_a_conversion_states_the_depth_of_its_check(
    tmp_path: Path, verify: str, depth: str, sound: bool | None
) -> None:
    made = convert(input=str(PHOTOS), output=str(tmp_path / "out"), resize=8, limit=5, verify=verify)
    stored = json.loads((Path(made.path) / "findings.json").read_text())
    assert (stored["mode"], stored["depth"], stored["sound"]) == (depth, depth, sound)
    assert stored["passed"] is True
    fast = validate(made.path, mode="fast")
    assert (fast.mode, fast.run.check_depth, fast.sound) == ("fast", CheckDepth.FAST, True)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("verify", "depth", "sound"), [("none", "none", None), ("fast", "frames", True)])
def test_a_rebuild_states_the_depth_of_its_check(
    tmp_path: Path, verify: str, depth: str, sound: bool | None
) -> None:
    made = rebuild(input=str(PHOTOS), output=str(tmp_path / "out"), resize=8, limit=5, verify=verify)
    stored = json.loads((Path(made.path) / "findings.json").read_text())
    assert (stored["mode"], stored["depth"], stored["sound"]) == (depth, depth, sound)
    page = (Path(made.path) / "report.html").read_text()
    assert ("Not verified" in page) == (sound is None) and ("✓ Sound" in page) == bool(sound)


def test_a_version_published_during_a_validation_does_not_change_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = str(tmp_path / "out")
    first, second = (rebuild(input=str(PHOTOS), output=output, resize=8, limit=limit) for limit in (5, 4))
    assert main(["rollback", output, "--to", first.version]) == 0
    run = command.run_pipeline

    def then_publish(build: Any, options: Any) -> Any:
        result = run(build, options)
        assert main(["rollback", output, "--to", second.version]) == 0
        return result

    monkeypatch.setattr(command, "run_pipeline", then_publish)
    capsys.readouterr()
    assert main(["validate", output, "--quality"]) == 0
    out = capsys.readouterr().out
    assert f"{first.version}/report.html" in out and f"{second.version}/report.html" not in out
    assert [line.split()[1] for line in out.splitlines() if line.split()[:1] == ["train"]] == ["5"]
