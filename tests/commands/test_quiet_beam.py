"""Commands print nothing that Beam prints, and worker processes give the same bytes."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability import local_job_service
from apache_beam.runners.worker import sdk_worker
from helpers.hostile import make_tree

import shardwright
from shardwright.core.rebuild.task import show_stages
from shardwright.pipelines.quiet_beam import quiet_worker_processes, suppress_beam_logs
from shardwright.pipelines.run import exit_code_of, run_pipeline

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


def test_a_worker_process_writes_the_same_bytes(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "in")
    here, there = (
        shardwright.convert(input=tree, output=tmp_path / name, resize=8, beam_options=options)
        for name, options in (("here", []), ("there", _PROCESSES))
    )
    assert here.dataset.fingerprint == there.dataset.fingerprint


#: Prints what threads of Beam, and others, print when they fail, before and after tracebacks are hidden.
_FAILURES = """
import sys, threading
from apache_beam.runners.worker import sdk_worker
from shardwright.pipelines.quiet_beam import hide_tracebacks

of_beam = {"__name__": "apache_beam.runners.worker.made_up"}
exec("def fail():\\n    raise ValueError('of a worker')", of_beam)

def own():
    raise ValueError("our own")

def fail():
    for function in (of_beam["fail"], own):
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()
    vars(sdk_worker).get("print", print)("a traceback", file=sys.stderr)

fail()
print("hidden", file=sys.stderr)
hide_tracebacks()
hide_tracebacks()
fail()
"""


def test_tracebacks_of_beams_workers_are_hidden_and_all_others_shown() -> None:
    done = subprocess.run([sys.executable, "-c", _FAILURES], capture_output=True, text=True, check=True)
    before, _, after = done.stderr.partition("hidden\n")
    for text in ("of a worker", "our own", "a traceback"):
        assert text in before
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
        show_stages(shown=False)
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


def test_a_library_call_leaves_beam_unchanged(tmp_path: Path) -> None:
    before = threading.excepthook, vars(sdk_worker).get("print")
    shardwright.convert(input=make_tree(tmp_path / "in"), output=tmp_path / "out")
    assert (threading.excepthook, vars(sdk_worker).get("print")) == before
