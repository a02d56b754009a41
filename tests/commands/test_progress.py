"""What a command prints while it works: its progress, and nothing that Beam prints."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics.cells import DistributionData, DistributionResult
from apache_beam.metrics.execution import MetricKey, MetricResult
from apache_beam.metrics.metric import Lineage
from apache_beam.metrics.metricbase import MetricName
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability import local_job_service
from apache_beam.runners.worker import sdk_worker
from helpers.hostile import make_tree

from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.rebuild.task import show_stages
from shardwright.pipelines import cli, progress
from shardwright.pipelines.progress import progress_text, show_progress
from shardwright.pipelines.run import (
    exit_code_of,
    hide_tracebacks,
    metrics_of,
    quiet_worker_processes,
    run_pipeline,
    suppress_beam_logs,
)
from shardwright.transforms.runner_features import report_sink


@pytest.fixture(autouse=True)
def fresh_board() -> None:
    PROGRESS.reset()


def test_the_line_shows_images_rate_time_left_shards_and_faults() -> None:
    assert progress_text(0) == "starting"
    PROGRESS.add(listed=7000)
    assert progress_text(0) == "listing: 7,000 files"
    PROGRESS.total_images, PROGRESS.total_shards = 7000, 8
    PROGRESS.add(images=1000, bad=3, shards=1)
    assert progress_text(0.1) == "1,000/7,000 images, shard 1/8, 3 bad"
    assert progress_text(10) == "1,000/7,000 images, 100 images/s, 1:00 left, shard 1/8, 3 bad"
    assert "1:40:00 left" in progress_text(1000)
    PROGRESS.add(checked_records=6997, checked_shards=8)
    assert progress_text(70) == "reading back: 6,997 records, shard 8/8, 0 findings"


def test_workers_in_other_processes_are_counted_from_their_ledgers(tmp_path) -> None:
    (tmp_path / "_shards").mkdir()
    for i in range(3):
        (tmp_path / "_shards" / f"{i}.jsonl.gz").touch()
    assert progress_text(5, str(tmp_path)) == "3 shards, 0 bad"
    PROGRESS.total_shards = 2  # the others are left of an earlier run
    assert progress_text(5, str(tmp_path)) == "shard 2/2, 0 bad"


def test_the_input_is_described_once_before_the_work(tmp_path: Path, capsys: Capture) -> None:
    with show_progress(True, str(tmp_path)):
        PROGRESS.tree = "3 splits x 10 classes, 3,781 images"
    assert capsys.readouterr().err == "shardwright: found: 3 splits x 10 classes, 3,781 images\n"
    with show_progress(True):  # the command prints it itself
        PROGRESS.tree = "10 classes"
    assert not capsys.readouterr().err


def test_an_unchanged_state_is_printed_once(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "TICK_SECONDS", 0.001)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    states = iter(["starting"] * 6 + ["listing"] * 3 + ["starting"])
    told = threading.Event()

    def state(seconds: float, directory: str = "") -> str:
        text = next(states, "")
        if not text:
            told.set()
        return text or "starting"

    monkeypatch.setattr(progress, "progress_text", state)
    with show_progress(True):
        assert told.wait(60)
    err = capsys.readouterr().err.splitlines()
    assert err == [f"shardwright: {text}" for text in ("starting", "listing", "starting")]


def key(step: str, name: str) -> MetricKey:
    return MetricKey(step, MetricName("shardwright", name))


def test_values_that_a_runner_omits_count_as_zero() -> None:
    spread = DistributionResult(DistributionData(6, 2, 2, 4))
    told = {
        "counters": [
            MetricResult(key("a", "written"), 3, 3),
            MetricResult(key("b", "written"), None, 4),
            MetricResult(key("a", "filtered"), 0, None),
        ],
        "distributions": [
            MetricResult(key("a", "bytes"), spread, spread),
            MetricResult(key("b", "sizes"), None, None),
        ],
    }
    assert metrics_of(SimpleNamespace(metrics=lambda: SimpleNamespace(query=lambda _: told))) == {
        "bytes": {"count": 2, "sum": 6, "min": 2, "max": 4, "mean": 3.0},
        "filtered": 0,
        "written": 7,
    }


@pytest.mark.parametrize("command", ["convert", "rebuild"])
def test_a_job_reports_its_inputs_and_its_output_once(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Any] = []
    run = beam.Pipeline.run
    monkeypatch.setattr(beam.Pipeline, "run", lambda pipeline: ended.append(run(pipeline)) or ended[-1])
    inputs = sorted(make_tree(tmp_path / "in").iterdir())
    names = [f"--input={path.name}={path}" for path in inputs]
    output = tmp_path / "out"
    assert cli.main([command, *names, f"--output={output}", "--unlabelled=keep", "--verify=none"]) == 0
    (result,) = ended
    assert Lineage.query(result.metrics(), Lineage.SOURCE) == {
        f"filesystem:localhost.{path}" for path in inputs
    }
    assert Lineage.query(result.metrics(), Lineage.SINK) == {f"filesystem:localhost.{output}"}


def test_a_whole_bucket_prints_no_traceback_of_beam(capsys: pytest.CaptureFixture[str]) -> None:
    report_sink("s3://bucket")
    assert capsys.readouterr().err == ""


Capture = pytest.CaptureFixture[str]
_PROCESSES = ["--direct_running_mode=multi_processing", "--direct_num_workers=1"]


def test_a_worker_process_that_dies_is_one_sentence_and_exit_code_3(capfd: Capture) -> None:
    def command() -> int:
        with suppress_beam_logs(verbose=False):
            # Beam sees the broken connection when it reads what the step gives to the next one.
            run_pipeline(
                lambda pipeline: (
                    pipeline
                    | beam.Create([signal.SIGKILL])
                    | beam.Map(signal.raise_signal)
                    | beam.Reshuffle()
                ),
                # Beam would choose Prism if a server is there, which runs the step in this process.
                PipelineOptions(["--runner=FnApiRunner", *_PROCESSES]),
            )
        return 0

    assert exit_code_of(command, resumable=True) == 3
    err = capfd.readouterr().err
    assert err.startswith("shardwright: A worker process ended unexpectedly, often because"), err
    assert err.count("\n") == 1


def test_tracebacks_of_beams_workers_are_hidden_and_all_others_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    of_beam: dict[str, Any] = {"__name__": "apache_beam.runners.worker.made_up"}
    exec("def fail():\n    raise ValueError('of a worker')", of_beam)

    def own() -> None:
        raise ValueError("our own")

    def printed() -> str:
        """Returns what threads of Beam, and others, print when they fail."""
        for function in (of_beam["fail"], own):
            thread = threading.Thread(target=function)
            thread.start()
            thread.join()
        vars(sdk_worker).get("print", print)("a traceback", file=sys.stderr)
        return capsys.readouterr().err

    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    monkeypatch.setattr(sdk_worker, "print", print, raising=False)
    monkeypatch.delattr(sdk_worker, "print")  # as if no command had run in this process
    before = printed()
    for text in ("of a worker", "our own", "a traceback"):
        assert text in before
    hide_tracebacks()
    hide_tracebacks()
    after = printed()
    assert "our own" in after and "of a worker" not in after and "a traceback" not in after


@pytest.mark.parametrize("verbose", [False, True])
def test_only_the_lines_of_rebuilds_are_shown_of_what_workers_log(
    verbose: bool, capsys: Capture, caplog: pytest.LogCaptureFixture
) -> None:
    severity = beam_fn_api_pb2.LogEntry.Severity.INFO
    entries = [
        beam_fn_api_pb2.LogEntry(
            severity=severity, message='compared: "é"\n', log_location="rebuild/task.py:9"
        ),
        beam_fn_api_pb2.LogEntry(severity=severity, message="noise", log_location="sdk_worker.py:1"),
    ]
    show_stages()
    try:
        with suppress_beam_logs(verbose), quiet_worker_processes():
            local_job_service.BeamFnLoggingServicer().Logging(
                [beam_fn_api_pb2.LogEntry.List(log_entries=entries)]
            )
    finally:
        show_stages(is_shown=False)
    assert 'compared: "é"' in capsys.readouterr().err
    assert sum("noise" in text for text in caplog.messages) == verbose


def test_the_loggers_of_engines_are_enabled_again_afterwards() -> None:
    logger = logging.getLogger("PrismJobServer")
    before = logger.disabled
    with suppress_beam_logs(False):
        assert logger.disabled
    assert logger.disabled == before
    with suppress_beam_logs(True):
        assert not logger.disabled
