"""The log lines of a rebuild: one per stage, in the requested format, wherever the stage ran."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import Progress

from shardwright.core.lease import Lease
from shardwright.core.rebuild.task import RebuildTask, line_of, show_stages, stage
from shardwright.pipelines.run import suppress_beam_logs
from shardwright.schemas.configuration.settings import ConvertSettings

TASK = RebuildTask(
    "gs://b/pets", Lease("run", "20261121T020000Z"), ConvertSettings(input=("in",), output="out"), {}
)


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_lines_have_a_format_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show_stages()
    stage(TASK, "compared", "3 of 16 shards changed", changed=3, shards=16)
    assert shown(capsys) == ["shardwright: compared: 3 of 16 shards changed"]


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
