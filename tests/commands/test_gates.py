"""Validation as a gate, data that was not read, the report of commands, and private metadata."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from helpers.depths import findings_of
from helpers.hostile import flip
from helpers.listing import listed
from PIL import Image

from shardwright.core.report.render import verdict_of
from shardwright.pipelines import cli
from shardwright.pipelines.cli import main
from shardwright.pipelines.convert import convert
from shardwright.pipelines.report import report
from shardwright.pipelines.results import print_findings
from shardwright.pipelines.validate import validate
from shardwright.schemas.codes import CheckDepth, FindingCode, Severity
from shardwright.schemas.errors import UsageError
from shardwright.schemas.findings import Finding, Gates, ValidationReport, with_previous_checks
from shardwright.schemas.ledger import load_ledger

Capture = pytest.CaptureFixture[str]


def run(dataset: Path, *options: str) -> int:
    return main(["validate", "--dataset", str(dataset), "--fast", *options])


def test_expectations_decide_the_exit_code_and_are_in_both_reports(dataset: Path, tmp_path: Path) -> None:
    expected, junit = tmp_path / "expectations.yaml", tmp_path / "out.xml"
    expected.write_text(
        "min_images: 7\nmin_images_per_class: 3\nmin_images_per_split: {test: 1000}\n"
        "allowed_formats: [jpeg, png]\n"
    )
    assert run(dataset, "--expect", str(expected), "--junit", str(junit)) == 1
    (suite,) = ElementTree.parse(junit).getroot()
    failed = {case.attrib["name"] for case in suite if case.find("failure") is not None}
    assert failed == {"min_images", "min_images_per_split"}
    report = json.loads((dataset / "findings.json").read_text())
    assert report["counts"] == {"EXPECTATION": 2}
    assert report["findings"][0]["message"] == "min_images: it has 6 images, less than 7"
    assert run(dataset, "--expect", str(expected), "--warn_on", "EXPECTATION") == 0


def test_gates_change_errors_to_warnings_and_back_and_limits_on_differences_are_ignored(
    dataset: Path, tmp_path: Path, capsys: Capture
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
    report = validate(copy, mode="fast", warn_on=" sidecar_mismatch")  # a path object, and a text
    assert (report.sound, report.errors, report.warnings) == (True, 0, 1)


def test_a_gate_on_image_quality_measures_every_picture(dataset: Path, tmp_path: Path) -> None:
    expected = tmp_path / "expectations.yaml"
    expected.write_text("min_width: 17\nmax_height: 16\n")
    report = validate(str(dataset), expect=str(expected))
    assert (report.mode, report.errors, report.counts["EXPECTATION"]) == ("quality", 1, 1)
    with pytest.raises(UsageError, match="--warn_on DARK needs decoded images, and --fast decodes none"):
        validate(str(dataset), mode="fast", warn_on=["DARK"])
    with pytest.raises(UsageError, match="--expect max_fraction UNDECODABLE needs decoded images"):
        validate(str(dataset), mode="fast", expect={"max_fraction": {"UNDECODABLE": 0}})
    with pytest.raises(UsageError, match=r"--fail_on SOURCE_CHANGED needs the images .* with --against"):
        validate(str(dataset), fail_on="SOURCE_CHANGED")
    with pytest.raises(UsageError, match=r"--expect min_classes needs a dataset\.json"):
        validate(f"{dataset}/*.tfrecord", expect={"min_classes": 2})


def test_nothing_is_read_if_nothing_can_be_written(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # like on a read-only file system
    monkeypatch.setattr("shardwright.pipelines.prepare.run_pipeline", lambda *_: pytest.fail("it ran"))
    assert run(dataset) == 3
    err = capsys.readouterr().err
    assert "findings.json" in err and "choose another place with --report" in err


def test_the_help_lists_every_code(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["validate", "--help"])
    words = set(capsys.readouterr().out.replace(",", " ").split())
    assert words >= set(FindingCode)


def test_names_that_could_control_a_terminal_are_shown_as_text(capsys: Capture) -> None:
    finding = Finding(FindingCode.DATA_CRC, "wrong\x1b]0;x\x07", "s\x1b[2J", 1, 2, "a\nb\x9b31m")
    print_findings(ValidationReport("d\x1b[1m", "fast", None, 1, 1, 1, {"DATA_CRC": 1}, (finding,)))
    out = capsys.readouterr().out
    assert not any(char in out for char in "\x1b\x07\x9b")
    assert "a\\nb" in out and "\\x1b[2J" in out


FINGERPRINT = "a" * 64


def report_of(depth: CheckDepth, *findings: Finding, time: str = "") -> ValidationReport:
    counts = {finding.code.value: 1 for finding in findings}
    return ValidationReport("out", depth.word, FINGERPRINT, 1, 2, 3, counts, tuple(findings), time=time)


@pytest.mark.parametrize("depth", CheckDepth)
def test_only_data_that_was_read_is_sound(depth: CheckDepth, capsys: Capture) -> None:
    report = report_of(depth)
    known = None if depth is CheckDepth.NONE else True
    assert report.sound is known and report.passed
    document = report.as_json()
    assert document["sound"] is known and document["passed"] is True
    assert ValidationReport.from_json(document) == report
    assert verdict_of(report) == (("✓ Sound", "good") if known else ("? Not verified", "unknown"))
    print_findings(report)
    out = capsys.readouterr().out
    assert ("out: Sound" in out) == bool(known) and ("out: not verified" in out) != bool(known)


def test_reading_by_an_earlier_check_counts() -> None:
    earlier = report_of(CheckDepth.FULL, time="2026-11-01T00:00:00Z").as_json()
    report = with_previous_checks(report_of(CheckDepth.NONE, time="2026-11-02T00:00:00Z"), [earlier])
    assert report.sound is True and verdict_of(report) == ("✓ Sound", "good")


def test_a_validation_writes_the_report_and_it_is_written_again(
    copied: Path, sound_dataset: Path, tmp_path: Path
) -> None:
    validate(str(copied))
    page = (copied / "report.html").read_text()
    assert "✓ Sound" in page and "every image decoded" in page
    assert page.count("<img") >= 20
    assert "shardwright validate --dataset" in page  # --quality would measure this
    before = sorted(path.name for path in copied.rglob("*"))
    assert main(["report", str(copied), "--output", str(tmp_path / "a.html")]) == 0
    assert (tmp_path / "a.html").read_text().count("✓ Sound") == 1
    assert sorted(path.name for path in copied.rglob("*")) == before
    made = report(str(copied))
    assert made.path == str(copied / "report.html")
    assert made.bytes == (copied / "report.html").stat().st_size
    report(str(copied), previous=str(sound_dataset), output=str(tmp_path / "a.html"))
    page = (tmp_path / "a.html").read_text()
    assert "Compared with the previous dataset" in page and "Jensen-Shannon" in page


def test_the_report_says_if_a_dataset_is_not_validated_or_unsound(copied: Path, capsys: Capture) -> None:
    (copied / "findings.json").unlink()  # the findings of the conversion's own verification
    assert main(["report", "--dataset", str(copied)]) == 0
    assert "not validated yet" in capsys.readouterr().out
    assert "Not validated" in (copied / "report.html").read_text()
    shard = next(copied.glob("train-*.tfrecord"))
    flip(shard, 200)
    assert main(["validate", "--dataset", str(copied)]) == 1
    page = (copied / "report.html").read_text()
    assert "✗ Not sound" in page and "DATA_CRC" in page and shard.name in page


def test_the_report_of_a_validation_can_go_elsewhere_or_nowhere(copied: Path, tmp_path: Path) -> None:
    validate(str(copied), mode="fast", report=str(tmp_path / "v.json"))
    assert not list(tmp_path.rglob("*.html"))
    validate(str(copied), mode="fast", report=str(tmp_path / "v.json"), html=str(tmp_path / "p.html"))
    assert "without decoding images" in (tmp_path / "p.html").read_text()
    assert not (copied / "report.html").exists()


def test_foreign_files_have_a_report_if_a_path_is_given(sound_dataset: Path, tmp_path: Path) -> None:
    pattern = str(sound_dataset / "*.tfrecord")
    made = report(pattern, output=str(tmp_path / "a.html"))
    assert made.data.dataset is None and "<img" in (tmp_path / "a.html").read_text()
    validate(pattern, mode="fast", html=str(tmp_path / "b.html"), report=str(tmp_path / "b.json"))
    assert "Sound" in (tmp_path / "b.html").read_text()


def test_private_metadata_are_reported_until_they_are_stripped(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif.get_ifd(0x8825).update({1: "N", 2: (47.0, 22.0, 30.0), 3: "E", 4: (8.0, 32.0, 0.0)})
    for name, options in (("cat/home.jpg", {"exif": exif}), ("cat/plain.jpg", {}), ("dog/plain.png", {})):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.linear_gradient("L").convert("RGB").save(tmp_path / "in" / name, **options)
    out = tmp_path / "out"
    result = convert(input=str(tmp_path / "in"), output=str(out), shards=1, verify="none")
    assert result.outcome["warnings"] == [
        "The metadata of kept originals have a GPS position (1); --strip_metadata removes them."
    ]
    header, entries = load_ledger((out / "_shards" / "train-00000-of-00001.jsonl.gz").read_bytes())
    assert header.private == {"position": 1}
    assert {entry.key: entry.private for entry in entries if entry.private} == {"cat/home.jpg": "position"}
    assert not findings_of(out, "fast")
    (finding,) = findings_of(out)
    assert (finding.code, finding.key) == (FindingCode.PRIVATE_METADATA, "cat/home.jpg")
    assert finding.message == "the metadata of its image has a GPS position"
    assert Gates().severity(finding.code) is Severity.WARNING
    assert cli.main(["validate", str(out), "--fail_on", "PRIVATE_METADATA"]) == 1
    assert json.loads((out / "findings.json").read_text())["errors"] == 1
    stripped = listed(tmp_path / "in", "classification").entries(strip_metadata=True)
    assert len(stripped) == 3 and not any(entry.private for entry in stripped.values())
