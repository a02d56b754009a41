"""Worker processes convert in order, and their death costs one item or ends the run with its name."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.concurrency.worker_pool import (
    WorkerPool,
    call_in_process,
    current_pool,
    worker_pool,
)
from shardwright.core.concurrency.worker_process import BOARD_BYTES, Board, WorkerProcess
from shardwright.pipelines.log import log_as
from shardwright.schemas.errors import EngineError, UsageError


@pytest.fixture(scope="module")
def processes() -> Iterator[WorkerPool]:
    pool = WorkerPool(2, in_processes=True)
    yield pool
    pool.close()


def double(item: int) -> int:
    return 2 * item


def process_id(item: int) -> int:
    time.sleep(0.01)
    return os.getpid()


def die_of(item: int) -> int:
    """Kills its process with the signal that a negative item names; exits with a status above 1000."""
    with UNDERWAY.working_on(f"photos/{item}.jpg", "decode"):
        if item < 0:
            os.kill(os.getpid(), -item)
        if item > 1000:
            os._exit(item - 1000)
        return item


class Unpicklable(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


def fail(item: int) -> int:
    if item == 5:
        raise UsageError("the fifth is wrong.")
    if item == 6:
        raise Unpicklable("a", "b")
    return item


def lost(item: int, how: str) -> int:
    return f"{item} {how}"  # type: ignore[return-value]


def test_processes_convert_in_order_and_share_the_work(processes: WorkerPool) -> None:
    assert list(processes.map(double, range(500), weigh=lambda _: 1)) == [2 * item for item in range(500)]
    found = set(processes.map(process_id, range(100), weigh=lambda _: 1, chunk_items=4))
    assert len(found) == 2 and os.getpid() not in found


def test_crashes_cost_the_items_that_caused_them(processes: WorkerPool) -> None:
    """Also if several are in one chunk, and if a process ends with an exit code."""
    bad = {-signal.SIGSEGV: "SIGSEGV", -signal.SIGABRT: "SIGABRT", 1000 + 7: "exit code 7"}
    first, *others = bad
    items = [*range(20), first, 20, *others, *range(21, 40)]
    found = list(processes.map(die_of, items, weigh=lambda _: 1, crashed=lost))
    assert found == [f"{item} {bad[item]}" if item in bad else item for item in items]


def test_a_killed_process_ends_the_run_and_its_item_is_named(processes: WorkerPool) -> None:
    with pytest.raises(EngineError, match=r"SIGKILL.* worked on photos/-9.jpg .*memory.*--resume"):
        list(processes.map(die_of, [1, 2, -signal.SIGKILL, 3], weigh=lambda _: 1, crashed=lost))
    assert list(processes.map(double, [1], weigh=lambda _: 1)) == [2]  # another process has its place


def test_a_crash_without_a_substitute_ends_the_run(processes: WorkerPool) -> None:
    with pytest.raises(EngineError, match=r"SIGSEGV.* worked on photos/-11.jpg \(decode\)"):
        list(processes.map(die_of, [1, -signal.SIGSEGV], weigh=lambda _: 1))


@pytest.mark.parametrize("started", [0, 1])
def test_a_process_that_cannot_be_started_ends_every_run_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, started: int
) -> None:
    left = [started]

    def start(processes: int, preload: str) -> WorkerProcess:
        if not left[0]:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        left[0] -= 1
        return WorkerProcess(processes, preload)

    monkeypatch.setattr("shardwright.core.concurrency.worker_pool.WorkerProcess", start)
    pool = WorkerPool(1, in_processes=True)
    for _ in range(2):
        with pytest.raises(EngineError, match="No worker process can be started"):
            list(pool.map(die_of, [-signal.SIGSEGV, 1], weigh=lambda _: 1, crashed=lost, chunk_items=1))
    left[0] = 1
    assert list(pool.map(double, [1], weigh=lambda _: 1)) == [2]
    pool.close()


def test_a_full_disk_is_an_error_before_a_process_uses_its_memory_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", partial(open, "/dev/full", "wb", 0))
    with pytest.raises(EngineError, match="No space left on device"):
        WorkerPool(1, in_processes=True).start()


def test_exceptions_arrive_where_the_results_are_consumed(processes: WorkerPool) -> None:
    with pytest.raises(UsageError, match="the fifth is wrong"):
        list(processes.map(fail, range(10), weigh=lambda _: 1))
    with pytest.raises(RuntimeError, match="Unpicklable: a"):
        list(processes.map(fail, [6], weigh=lambda _: 1))


@pytest.mark.parametrize("in_processes", [False, True])
def test_a_single_call_runs_in_a_process_whatever_converts(in_processes: bool) -> None:
    pool = WorkerPool(1, in_processes)
    assert pool.call(pow, 2, 5, crashed=str) == 32
    assert pool.call(die_of, -signal.SIGABRT, crashed=str) == "SIGABRT"  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="the fifth"):
        pool.call(fail, 5, crashed=str)
    first, second = (pool.call(process_id, item, crashed=int) for item in (1, 2))
    assert os.getpid() != first == second
    assert ({*pool.map(process_id, range(20), weigh=lambda _: 1)} != {os.getpid()}) == in_processes
    pool.close()


def say(item: int) -> int:
    print(f"item {item}", end=" ")
    return item


def test_what_a_function_prints_is_written_before_its_process_ends(capfd: pytest.CaptureFixture[str]) -> None:
    pool = WorkerPool(1, in_processes=True)
    list(pool.map(say, range(3), weigh=lambda _: 1))
    pool.close()
    assert capfd.readouterr().out == "item 0 item 1 item 2 "


def test_a_function_may_print_where_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as unread, worker_pool(in_processes=True) as pool:
        monkeypatch.setattr(sys, "stdout", unread)
        assert list(pool.map(partial(print, flush=True), [1, 2], weigh=lambda _: 1)) == [None, None]


def say_loudly(item: int) -> None:
    logging.getLogger("library").error("logged")
    warnings.warn("warned", stacklevel=1)
    print(f"item {item}")


@pytest.mark.parametrize(
    ("log_format", "quiet", "lines"),
    [("text", True, ["item 1"]), ("json", False, ["warned", "item 1"]), ("json", True, ["item 1"])],
)
def test_a_function_prints_and_logs_as_the_command_does(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    log_format: str,
    quiet: bool,
    lines: list[str],
) -> None:
    monkeypatch.setattr(logging.getLogger(), "level", logging.CRITICAL)
    with log_as(log_format, quiet), contextlib.redirect_stdout(sys.stderr):  # as for --json
        pool = WorkerPool(1, in_processes=True)
        list(pool.map(say_loudly, [1], weigh=lambda _: 1))
    pool.close()
    out, err = capfd.readouterr()
    found = err.splitlines()
    assert not out and len(found) == len(lines) and all(map(str.__contains__, found, lines)), err
    assert all("message" in json.loads(line) for line in found[:-1])


def test_what_a_process_works_on_can_be_read(processes: WorkerPool, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    working = threading.Thread(target=lambda: list(processes.map(_wait_for, [str(seen)], weigh=lambda _: 1)))
    working.start()
    deadline = time.monotonic() + 60
    starts: list[float] = []
    while len({*starts}) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
        for task in processes.tasks():
            assert (task.place, task.stage) == (str(seen), "wait")
            starts.append(task.started)
    seen.touch()
    working.join()
    assert len({*starts}) == 2, "its progress cannot be read"
    assert starts == sorted(starts)
    assert processes.tasks() == []


def _wait_for(path: str) -> None:
    with UNDERWAY.working_on(path, "wait"):
        while not os.path.exists(path):
            time.sleep(0.05)
            UNDERWAY.progress()


def count_threads(_: int) -> int:
    import numpy as np

    np.ones((256, 256)) @ np.ones((256, 256))
    return psutil.Process().num_threads()


@pytest.mark.parametrize(("users", "threads"), [("", 1), ("2", 2)])
def test_a_process_computes_with_one_thread_unless_a_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, users: str, threads: int
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if users:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", users)
    with worker_pool(in_processes=True) as used:
        assert used.call(count_threads, 0, crashed=int) == threads


def test_no_process_outlives_the_converters() -> None:
    before = {process.pid for process in psutil.Process().children()}
    with worker_pool(in_processes=True, preload="json") as pool:
        assert current_pool() is pool
        started = {process.pid for process in psutil.Process().children()} - before
        assert started
        for process in started:
            os.kill(process, signal.SIGINT)  # as Ctrl-C does, also while they start
        with worker_pool(in_processes=False) as inner:  # a command within a command
            assert inner is pool
        assert list(pool.map(double, [1, 2], weigh=lambda _: 1)) == [2, 4]
    assert not started & {process.pid for process in psutil.Process().children()}


def test_a_script_need_not_guard_its_main_module(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from shardwright.core.concurrency.worker_pool import WorkerPool\n"
        "Path(__file__).with_suffix('.runs').open('a').write('run\\n')\n"
        "pool = WorkerPool(2, in_processes=True)\n"
        "print(list(pool.map(abs, [-1, 2], weigh=lambda _: 1)))\n"
        "pool.close()\n"
    )
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert (found.stdout, found.returncode) == ("[1, 2]\n", 0), found.stderr
    assert script.with_suffix(".runs").read_text() == "run\n"


def test_a_process_that_serves_several_commands_works_in_the_folder_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert call_in_process(os.getcwd, crashed=str) == str(tmp_path / name)


def test_a_fork_has_its_own_process_and_threads() -> None:
    script = (
        "import os\n"
        "from shardwright.core.concurrency.worker_pool import call_in_process\n"
        "from shardwright.core.concurrency.thread_pool import reading_executor\n"
        "def starter(): return reading_executor().submit(call_in_process, os.getppid, crashed=int).result()\n"
        "assert starter() == os.getpid()\n"
        "if not os.fork(): os._exit(starter() != os.getpid())\n"
        "assert not os.wait()[1] and starter() == os.getpid()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


#: Notes one step after the other, as a worker process does.
WRITE = """
import sys, time
from shardwright.core.concurrency.underway import Task
from shardwright.core.concurrency.worker_process import Board
board = Board(int(sys.argv[1]))
board.begin_item(0)
while True:
    board.write(Task("a.jpg", "read", time.monotonic()))
"""


def test_a_step_that_is_just_noted_never_looks_old() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(bytes(BOARD_BYTES))
        file.flush()
        board, began = Board(file.fileno()), time.monotonic()
        command = [sys.executable, "-c", WRITE, str(file.fileno())]
        with subprocess.Popen(command, pass_fds=[file.fileno()]) as writer:
            try:
                while board.read()[1] is None:
                    assert writer.poll() is None
                for _ in range(200_000):
                    _, task = board.read()
                    assert task is not None and task.started >= began
            finally:
                writer.kill()
