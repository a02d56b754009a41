"""Worker processes are forks of one process: they get their environment, and their ends are reported."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardwright.pipelines import worker_processes
from shardwright.pipelines.processes import descendants
from shardwright.pipelines.worker_processes import WORKER_MAIN, WorkerStarter, fork_worker, started_early

#: Forks workers that have imported nothing, and that do what their environment says.
_PROGRAM = """
import os, sys, time
from shardwright.pipelines.beam_worker import Forking
Forking(*map(int, sys.argv[2:5])).run()
with open(os.environ["OUT"], "a") as file:
    print(os.environ.get("HOME"), os.environ["NAME"], file=file)
time.sleep(float(os.environ.get("SLEEP", "0")))
sys.exit(int(os.environ.get("CODE", "0")))
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that workers write to. Nothing that a test started is left."""
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    monkeypatch.setattr(worker_processes, "_PROGRAM", (str(program),))
    before = {process.pid for process in descendants()}
    yield tmp_path / "out"
    deadline = time.monotonic() + 20
    while {process.pid for process in descendants() if process.is_running()} - before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_workers_get_their_environment_and_report_their_ends(out: Path) -> None:
    starter = WorkerStarter(3, silent=True)
    wanted = (("a", 0), ("ü\udcff\n", 7), ("c", 1))
    workers = [
        starter.start({"OUT": str(out), "NAME": repr(os.fsencode(name)), "CODE": str(code)})
        for name, code in wanted
    ]
    assert starter.start({}) is None, "there are no more than announced"
    assert [worker and worker.wait(30) for worker in workers] == [0, 7, 1]
    assert sorted(out.read_text().splitlines()) == sorted(f"None {os.fsencode(name)!r}" for name, _ in wanted)
    starter.close()


def test_a_killed_worker_is_reported_before_and_after_the_last_one_began(out: Path) -> None:
    starter = WorkerStarter(2, silent=True)
    environment = {"OUT": str(out), "NAME": "x", "SLEEP": "60"}
    first = starter.start(environment)
    assert first is not None and first.wait(0.01) is None
    deadline = time.monotonic() + 30
    while not out.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [process.is_worker for process in descendants() if process.pid == first.pid] == [True]
    first.kill()
    assert first.wait(30) == -signal.SIGKILL == first.poll()
    second = starter.start(environment)
    assert second is not None
    while out.read_text().count("\n") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    workers = [process for process in descendants() if process.is_worker]
    assert second.pid in [process.pid for process in workers]
    os.kill(second.pid, signal.SIGTERM)
    assert second.wait(30) == -signal.SIGTERM
    starter.close()


def test_only_workers_are_forked_and_only_while_they_are_prepared(out: Path) -> None:
    environment = {"OUT": str(out), "NAME": "x"}
    command = f"python -m {WORKER_MAIN}"
    assert fork_worker(command, environment) is None
    with started_early(0, silent=True):
        assert fork_worker(command, environment) is None
    with started_early(1, silent=True):
        assert fork_worker("python -m another", environment) is None
        with started_early(1, silent=True):
            worker = fork_worker(command, environment)
        assert worker is not None and worker.wait(30) == 0
        assert fork_worker(command, environment) is None
    assert fork_worker(command, environment) is None


def test_an_interrupt_ends_what_waits_for_requests(out: Path) -> None:
    starter = WorkerStarter(2, silent=True)
    worker = starter.start({"OUT": str(out), "NAME": "x"})
    assert worker is not None and worker.wait(30) == 0
    starter._process.send_signal(signal.SIGINT)
    assert starter._process.wait(30) == 0
    assert starter.start({"OUT": str(out), "NAME": "x"}) is None
    starter.close()


def test_workers_of_a_killed_parent_count_as_killed(out: Path) -> None:
    starter = WorkerStarter(2, silent=True)
    worker = starter.start({"OUT": str(out), "NAME": "x", "SLEEP": "0.2"})
    deadline = time.monotonic() + 30
    while not out.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    starter._process.kill()
    starter._process.wait()
    assert worker is not None
    # Its pipe stays open in no other process, so the end is seen at once.
    assert worker.wait(30) == -signal.SIGKILL
    starter.close()
