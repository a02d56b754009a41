"""Signals end commands and their workers in order; killed workers are reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.hostile import COMMAND, make_tree

from shardwright.pipelines import signals, watchdog
from shardwright.pipelines.processes import Process, descendants
from shardwright.pipelines.run import exit_code_of
from shardwright.pipelines.signals import ENDING, graceful_shutdown
from shardwright.pipelines.worker_ends import describe_end, noted_worker_ends
from shardwright.schemas.errors import DataRefused, EngineError

Capture = pytest.CaptureFixture[str]
#: A process that looks like a worker of Beam and ignores the signals that can be ignored.
_WORKER = (
    "import signal, sys, time\n"
    "for number in (signal.SIGINT, signal.SIGTERM):\n"
    "    signal.signal(number, signal.SIG_IGN)\n"
    "print('ready', flush=True)\n"
    "time.sleep(60)\n"
)


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


def test_an_interrupt_around_the_command_is_no_traceback(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may come while a command begins, or when it has reported its result and cleans up."""

    def interrupt(watcher: object, *raised: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(watchdog._LockWatcher, "__exit__", interrupt)
        assert exit_code_of(lambda: 1, lambda: False) == 1
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(watchdog._LockWatcher, "__enter__", interrupt)
    assert exit_code_of(lambda: 1, lambda: False) == 130
    assert capsys.readouterr().err == "shardwright: interrupted before anything began.\n"


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


def test_no_worker_process_outlives_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "GRACE_SECONDS", 0.1)
    line = f"'{sys.executable}' -c \"$SCRIPT\" apache_beam.runners.worker.sdk_worker_main; true"
    environment = {**os.environ, "SCRIPT": _WORKER}
    with subprocess.Popen(["sh", "-c", line], stdout=subprocess.PIPE, env=environment) as shell:
        assert shell.stdout is not None and shell.stdout.readline() == b"ready\n"
        found = descendants()
        worker = next(process for process in found if process.is_worker and not process.is_child)
        assert any(process.pid == shell.pid and process.is_child for process in found)
        with pytest.raises(KeyboardInterrupt), graceful_shutdown():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        shell.wait()
    deadline = time.monotonic() + 30
    while worker.is_running() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not worker.is_running()


def test_another_process_with_the_same_id_is_not_ended() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        Process(other.pid, "0", is_worker=True).send(signal.SIGKILL)
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (-9, "killed (signal 9, SIGKILL), probably because the machine ran out of memory; use fewer"),
        (
            137,
            "killed (signal 9, SIGKILL), probably because the machine ran out of memory; use fewer",
        ),
        (-11, "killed (signal 11, SIGSEGV); look at the system's log"),
        (143, "killed (signal 15, SIGTERM); look at the system's log"),
        (1, "ended by itself (exit code 1); see the full log"),
    ],
)
def test_the_end_of_a_worker_process_is_described(code: int, message: str) -> None:
    assert describe_end(code).startswith(f"A worker process {'was ' * (code != 1)}{message}")


def test_ends_of_workers_are_recorded_if_beam_only_prints_them() -> None:
    def wait_for_worker() -> None:
        raise RuntimeError("Worker subprocess exited with return code -9")

    before, threading.excepthook = threading.excepthook, lambda _: None
    try:
        with noted_worker_ends() as ends:
            assert ends.as_error() is None
            thread = threading.Thread(target=wait_for_worker)
            thread.start()
            ends.wait()
            thread.join()
    finally:
        threading.excepthook = before
    assert ends.codes == [-9]


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
def test_a_killed_worker_process_is_reported_as_killed(job: subprocess.Popen[str]) -> None:
    os.kill(_workers_of(job)[0], signal.SIGKILL)
    assert job.wait(60) == 3
    err = job.stderr.read() if job.stderr else ""
    assert "shardwright: A worker process was killed (signal 9, SIGKILL), probably" in err
    assert "Channel closed" not in err and not _workers_of(job)
