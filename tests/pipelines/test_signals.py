"""Signals end commands and their workers in order; killed workers are reported."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.hostile import COMMAND, make_tree

from shardwright.pipelines.run import exit_code_of
from shardwright.pipelines.signals import ENDING, graceful_shutdown
from shardwright.schemas.errors import DataRefused, EngineError

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.signal(number, signal.default_int_handler) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
def test_every_signal_to_end_ends_in_order(capsys: Capture, number: signal.Signals) -> None:
    def command() -> int:
        os.kill(os.getpid(), number)
        time.sleep(60)
        return 0

    assert exit_code_of(command, lambda: False, resumable=True) == 130
    reason = "" if number == signal.SIGINT else f"it was told to end ({number.name}); "
    assert capsys.readouterr().err == (
        f"shardwright: interrupted; {reason}run again with --resume to go on.\n"
    )
    assert signal.getsignal(number) is signal.default_int_handler


def test_errors_at_the_end_are_interruptions_but_refusals_stay(capsys: Capture) -> None:
    def broken() -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            raise EngineError("The engine failed; look.") from None
        return 0

    def refused() -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            raise DataRefused("Too many images are bad.") from None
        return 0

    assert exit_code_of(broken, lambda: False) == 130
    assert capsys.readouterr().err == "shardwright: interrupted; it was told to end (SIGTERM); run again.\n"
    assert exit_code_of(refused, lambda: False) == 1


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # like nohup
    with graceful_shutdown() as ending:
        os.kill(os.getpid(), signal.SIGHUP)
    assert not ending.received


def test_a_repeated_signal_does_not_disturb_the_end() -> None:
    with graceful_shutdown() as ending:
        with pytest.raises(KeyboardInterrupt):
            ending.receive(signal.SIGTERM, None)
        ending.receive(signal.SIGTERM, None)
        ending.received -= 60
        with pytest.raises(KeyboardInterrupt):
            ending.receive(signal.SIGINT, None)
    assert ending.reason == "it was told to end (SIGTERM); "


def test_outside_the_main_thread_signal_handlers_are_not_changed() -> None:
    def enter() -> None:
        with graceful_shutdown() as ending:
            assert not ending.received

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()


def test_processes_of_the_command_end_with_it_and_others_go_on() -> None:
    with subprocess.Popen(["sleep", "60"]) as other, contextlib.ExitStack() as stack:
        time.sleep(0.1)  # start times have a resolution of 10 ms
        with pytest.raises(KeyboardInterrupt), graceful_shutdown():
            own = stack.enter_context(subprocess.Popen(["sh", "-c", "sleep 60; true"]))
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        assert own.wait(30) == -signal.SIGKILL
        assert other.poll() is None
        other.kill()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A conversion with two worker processes that has written a few shards."""
    make_tree(tmp_path / "in", 600)
    command = [str(COMMAND), "convert", "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    command += ["--direct_running_mode=multi_processing", "--direct_num_workers=2", "--shards=40"]
    command += ["--resize=500", "--image_format=png"]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not list((tmp_path / "out" / "_shards").glob("*.gz")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        yield process
        process.kill()


def _workers_of(job: subprocess.Popen[str]) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line, status = (folder / "cmdline").read_bytes(), (folder / "stat").read_text()
        except OSError:
            continue
        group = int(status.rpartition(")")[2].split()[2])
        if group == job.pid and b"sdk_worker_main" in line and not line.startswith(b"/bin/sh"):
            found.append(int(folder.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_conversion_ends_with_its_worker_processes(
    job: subprocess.Popen[str], number: signal.Signals
) -> None:
    assert len(_workers_of(job)) == 2
    job.send_signal(number)
    assert job.wait(60) == 130
    err = job.stderr.read() if job.stderr else ""
    assert err.endswith(
        f"shardwright: interrupted; it was told to end ({number.name}); run again with --resume to go on.\n"
    )
    assert not _workers_of(job)


@pytest.mark.slow
def test_a_killed_worker_process_is_reported(job: subprocess.Popen[str]) -> None:
    os.kill(_workers_of(job)[0], signal.SIGKILL)
    assert job.wait(60) == 3
    err = job.stderr.read() if job.stderr else ""
    assert "shardwright: A worker process ended unexpectedly" in err and "Traceback" not in err
    assert "Channel closed" not in err and not _workers_of(job)
