"""What a rebuild reports: new and accepted findings, a log line for each stage, and `metrics.prom`."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.progress import Progress

from shardwright.core import storage
from shardwright.core.lease import Lease
from shardwright.core.rebuild.gate import Accepted
from shardwright.core.rebuild.notify import OUTCOMES, Value, metrics_text, run_values, write_metrics
from shardwright.core.rebuild.task import RebuildTask, line_of, show_stages, stage
from shardwright.pipelines.run import suppress_beam_logs
from shardwright.schemas.codes import FindingCode, Severity
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.findings import Finding, FindingsOfCode, Violation, Where

CODE = FindingCode.SPLIT_LEAKAGE
REFUSED = Violation("findings", CODE.value, Severity.ERROR, "some leak")


def _weigh(accepted: Accepted, count: int, *findings: Finding) -> Violation:
    group = FindingsOfCode(CODE, Severity.ERROR, count, findings)
    return accepted.weigh(REFUSED, *accepted.new_findings(group))


def _pair(key: str, other: str) -> Finding:
    place = Where("test-00000-of-00001.tfrecord", 0, 0, other)
    return Finding(CODE, "same source bytes", "train-00000-of-00001.tfrecord", 0, 0, key, place)


@pytest.mark.parametrize(
    ("count", "severity"), [(1200, Severity.WARNING), (1100, Severity.WARNING), (1203, Severity.ERROR)]
)
def test_findings_that_are_not_all_stored_are_compared_by_number(count: int, severity: Severity) -> None:
    known = frozenset((frozenset(("a", "b")),))
    accepted = Accepted("v1", ("findings",), counts={CODE.value: 1200}, findings={CODE.value: known})
    found = _weigh(accepted, count, _pair("x", "y"))
    assert found.severity is severity
    assert ("3 are new" in found.message) is (severity is Severity.ERROR)


def test_a_pair_is_the_same_in_either_order() -> None:
    known = frozenset((frozenset(("a", "b")),))
    accepted = Accepted("v1", (CODE.value,), counts={CODE.value: 1}, findings={CODE.value: known})
    assert _weigh(accepted, 1, _pair("b", "a")).severity is Severity.WARNING
    new = _weigh(accepted, 2, _pair("b", "a"), _pair("c", "a"))
    message = "some leak; 1 is new since version v1, the first: c: same source bytes"
    assert (new.severity, new.message) == (Severity.ERROR, message)


def test_findings_of_a_code_that_nobody_accepted_refuse() -> None:
    accepted = Accepted("v1", ("drift",), counts={CODE.value: 1})
    assert _weigh(accepted, 1, _pair("a", "b")) is REFUSED


TASK = RebuildTask(
    "gs://b/pets", Lease("run", "20261121T020000Z"), ConvertSettings(input=("in",), output="out"), {}
)


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_lines_have_a_format_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    show_stages()
    task = replace(TASK, log_format="json")
    stage(task, "compared", "3 of 16 shards changed", changed=3, level="no", output="no")
    (line,) = shown(capsys)
    value = json.loads(line)
    assert value.pop("time")[-1] == "Z" and value.pop("seconds") >= 0
    assert value == {
        "level": "INFO",
        "stage": "compared",
        "version": TASK.version,
        "output": TASK.output,
        "message": "3 of 16 shards changed",
        "changed": 3,
    }


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.builds(object),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.sets(st.text()),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), anything, max_size=4), st.text(), st.sampled_from(["text", "json"]))
def test_any_facts_are_one_valid_line(facts: dict[str, Any], message: str, log_format: str) -> None:
    line = line_of(log_format, "compared", message, facts, {})
    assert len(line.encode("utf-8").decode().splitlines()) == 1
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in line)
    if log_format == "json":
        value = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
        assert value["level"] == "INFO" and value["stage"] == "compared"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_secret_in_a_url_is_not_shown(log_format: str) -> None:
    text = "cannot read https://me:s3cr3t@host/x?X-Amz-Signature=s3cr3t and HTTP://s3cr3t@host/y"
    line = line_of(log_format, "failed", text, {"s": [text], "https://s3cr3t@h": 1}, {})
    assert "s3cr3t" not in line and "host/x" in line and "host/y" in line
    place = line_of(log_format, "x", "gs://b/pets@20261121T020000Z/what?.jpg", {}, {})
    assert "gs://b/pets@20261121T020000Z/what?.jpg" in place


def test_a_line_is_logged_once_whatever_others_log(capsys: pytest.CaptureFixture[str]) -> None:
    with suppress_beam_logs(False):
        show_stages()
        show_stages()
        stage(TASK, "planned", "7 images")
        logging.getLogger("apache_beam").info("noise")
    assert shown(capsys) == ["shardwright: planned: 7 images"]
    with suppress_beam_logs(True):
        stage(TASK, "planned", "7 images")
    assert shown(capsys) == ["shardwright: planned: 7 images"]
    show_stages(is_shown=False)
    stage(TASK, "planned", "7 images")
    assert shown(capsys) == []


def test_a_notebook_that_replaces_stderr_shows_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    show_stages()
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    stage(TASK, "planned", "7 images")
    assert screen.getvalue() == "shardwright: planned: 7 images\n"
    screen.close()
    stage(TASK, "planned", "nobody hears it")


def test_on_other_machines_lines_go_to_the_workers_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        stage(TASK, "planned", "7 images", images=7)
    assert caplog.messages == ["shardwright: planned: 7 images"]


def test_a_stage_has_its_own_line_above_the_progress_line(capsys: pytest.CaptureFixture[str]) -> None:
    screen = io.StringIO()
    show_stages()
    with Progress(console=Console(file=screen, force_terminal=True, width=60), transient=True) as bar:
        bar.add_task("reading back")
        bar.refresh()
        stage(TASK, "planned", "7 images", images=7)
        bar.refresh()
    assert not capsys.readouterr().err, "it would stand behind the line of progress"
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert "shardwright: planned: 7 images" in re.split(r"[\r\n]+", shown)


WORK = {"shards": 16, "reused_shards": 15, "converted": 40, "copied": 400, "quarantined": 2}
SCRUB = {"shards": 3, "damaged": ["a"], "bytes": 99}
RECORDS, FINDINGS = "shardwright_dataset_records", "shardwright_rebuild_findings"


def ended(state: str, at: float = 1.7e9 + 3600) -> dict[str, Value]:
    """Returns the values that a run knows that ended in this way."""
    return run_values({"state": state, "seconds": 2.0}, at)


RUN: dict[str, Value] = {
    **run_values({"state": "success", "seconds": 12.5, "work": WORK, "scrub": SCRUB}, 1.7e9),
    FINDINGS: {"SPLIT_LEAKAGE": 3},
    RECORDS: 7000,
    "shardwright_dataset_size_bytes": 123456789,
    "shardwright_dataset_classes": 12,
    "shardwright_dataset_versions": 5,
    "shardwright_dataset_latest_version_info": {("abc", "20261121T020000Z"): 1.0},
}
FAILED = ended("failure")
texts = st.text(max_size=12)
counts = st.dictionaries(texts, st.integers(0, 2**53), max_size=4)
runs = st.builds(
    lambda state, at, more: {**ended(state, at), **more}, st.sampled_from(OUTCOMES), st.floats(0, 1e12),
    st.fixed_dictionaries({}, optional={RECORDS: st.integers(0, 2**53), FINDINGS: counts}),
)  # fmt: skip


def read(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Returns (metric, labels without the dataset) -> value, read with Prometheus' own parser."""
    values = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge" and family.documentation
        for sample in family.samples:
            labels = frozenset(item for item in sample.labels.items() if item[0] != "dataset")
            assert (sample.name, labels) not in values
            values[sample.name, labels] = sample.value
    return values


def one(text: str, name: str, **labels: str) -> float:
    return read(text)[f"shardwright_{name}", frozenset(labels.items())]


def test_the_work_of_a_run_is_exported() -> None:
    text = metrics_text("pets", RUN)
    values = read(text)
    info = frozenset({("version", "20261121T020000Z"), ("fingerprint", "abc")})
    assert values.pop(("shardwright_dataset_latest_version_info", info)) == 1
    assert {(name, tuple(labels)): value for (name, labels), value in values.items()} == {
        ("shardwright_rebuild_last_run_timestamp_seconds", ()): 1.7e9,
        ("shardwright_rebuild_last_run_duration_seconds", ()): 12.5,
        ("shardwright_rebuild_last_run_outcome", (("outcome", "success"),)): 1,
        ("shardwright_rebuild_last_run_outcome", (("outcome", "no_change"),)): 0,
        ("shardwright_rebuild_last_run_outcome", (("outcome", "refused"),)): 0,
        ("shardwright_rebuild_last_run_outcome", (("outcome", "failure"),)): 0,
        ("shardwright_rebuild_last_success_timestamp_seconds", ()): 1.7e9,
        ("shardwright_rebuild_last_publication_timestamp_seconds", ()): 1.7e9,
        ("shardwright_rebuild_shards", (("result", "written"),)): 1,
        ("shardwright_rebuild_shards", (("result", "reused"),)): 15,
        ("shardwright_rebuild_images", (("result", "converted"),)): 40,
        ("shardwright_rebuild_images", (("result", "copied"),)): 400,
        ("shardwright_rebuild_images", (("result", "quarantined"),)): 2,
        ("shardwright_rebuild_findings", (("code", "SPLIT_LEAKAGE"),)): 3,
        ("shardwright_rebuild_scrubbed_shards", (("result", "sound"),)): 2,
        ("shardwright_rebuild_scrubbed_shards", (("result", "damaged"),)): 1,
        ("shardwright_rebuild_scrubbed_bytes", ()): 99,
        ("shardwright_dataset_records", ()): 7000,
        ("shardwright_dataset_size_bytes", ()): 123456789,
        ("shardwright_dataset_classes", ()): 12,
        ("shardwright_dataset_versions", ()): 5,
    }
    assert text.count('dataset="pets"') == len(read(text)) and text.endswith("\n")


def test_a_failed_run_is_exported_and_keeps_unknown_values() -> None:
    before = metrics_text("pets", RUN)
    after = metrics_text("pets", FAILED, before)
    assert one(after, "rebuild_last_run_outcome", outcome="failure") == 1
    assert one(after, "rebuild_last_run_outcome", outcome="success") == 0
    assert one(after, "rebuild_last_run_timestamp_seconds") == 1.7e9 + 3600
    changed = {key for key, value in read(before).items() if read(after)[key] != value}
    assert {name.removeprefix("shardwright_rebuild_") for name, _ in changed} == {
        "last_run_timestamp_seconds", "last_run_duration_seconds", "last_run_outcome"
    }  # fmt: skip
    assert metrics_text("pets", FAILED, after) == after


def test_how_a_run_ends_decides_which_times_move() -> None:
    before = metrics_text("pets", RUN)
    moved = {"success": (True, True), "no_change": (True, False), "refused": (False, False)}
    for outcome, (success, publication) in {**moved, "failure": (False, False)}.items():
        after = metrics_text("pets", ended(outcome), before)
        assert (one(after, "rebuild_last_success_timestamp_seconds") > 1.7e9) is success
        assert (one(after, "rebuild_last_publication_timestamp_seconds") > 1.7e9) is publication


def test_a_dataset_that_never_succeeded_has_no_time_of_success() -> None:
    assert not [
        name for name, _ in read(metrics_text("pets", FAILED)) if "success_t" in name or "publication" in name
    ]


def test_resolved_findings_are_not_exported() -> None:
    after = metrics_text("pets", {**RUN, FINDINGS: {}}, metrics_text("pets", RUN))
    assert not [name for name, _ in read(after) if name.endswith("findings")]


@given(runs, runs, texts)
def test_any_sequence_of_runs_can_be_read_back(
    first: dict[str, Any], second: dict[str, Any], dataset: str
) -> None:
    before = metrics_text("before", first)
    text = metrics_text(dataset, second, before)
    values = read(text)
    for value in (first, second):
        read(metrics_text("alone", value))
    known = {**first, **second}
    if RECORDS in known:
        assert values[RECORDS, frozenset()] == known[RECORDS]
    for code, count in known.get(FINDINGS, {}).items():
        assert values[FINDINGS, frozenset({("code", code)})] == count
    families = list(text_string_to_metric_families(text))
    assert {sample.labels["dataset"] for family in families for sample in family.samples} == {dataset}


@given(st.text(), st.integers(0, 3000), st.integers(0, 3000))
def test_a_damaged_file_is_tolerated(noise: str, start: int, length: int) -> None:
    before = metrics_text("pets", RUN)
    damaged = before[:start] + noise + before[start + length :]
    after = read(metrics_text("pets", FAILED, damaged))
    assert after["shardwright_rebuild_last_run_timestamp_seconds", frozenset()] == 1.7e9 + 3600
    assert read(metrics_text("\udc80\ud800", RUN, damaged))


def test_the_file_is_replaced_and_readable_by_others(tmp_path: Path) -> None:
    assert write_metrics(str(tmp_path / "pets"), RUN) == []
    path, umask = tmp_path / "pets" / "metrics.prom", os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    assert write_metrics(str(tmp_path / "pets"), FAILED) == []
    assert len({name for name, _ in read(path.read_text())}) == 15
    assert [item.name for item in path.parent.iterdir()] == ["metrics.prom"]


def test_an_unwritable_file_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metrics.prom").mkdir()
    (warning,) = write_metrics(str(tmp_path), RUN)
    assert str(tmp_path / "metrics.prom") in warning and warning.endswith(".")
    (tmp_path / "metrics.prom").rmdir()
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(storage, "write_bytes", mock.Mock(side_effect=full))
    assert "No space left" in write_metrics(str(tmp_path), RUN)[0]
