"""Names a file that takes long, and ends a command that is stuck.

A thread of the command looks at its own tasks and at those of its worker processes. While C code holds
Python's lock that thread cannot run; then `lock_watcher.py`, a process of its own, looks instead.

The contents of a dataset never depend on this clock: a command that is ended has left nothing out.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from shardwright.pipelines import log
from shardwright.pipelines.forced_exit import exit_pipe
from shardwright.pipelines.processes import descendants
from shardwright.schemas.codes import ExitCode
from shardwright.schemas.image_ref import printable
from shardwright.transforms.concurrency.underway import (
    BOARDS_VARIABLE,
    UNDERWAY,
    Task,
    Underway,
    tasks_of_others,
)
from shardwright.transforms.concurrency.worker_watchdog import DEFAULT_MINUTES

#: Default of `--stuck_after`: minutes after which a command is stuck.
STUCK_AFTER_MINUTES = DEFAULT_MINUTES
#: Seconds after which a slow file is named.
NAMED_AFTER = 30.0
_PAUSE_SECONDS = 1.0
#: A longer time in seconds between two checks shows that this process was stopped, so no file is stuck.
_GAP_SECONDS = 5.0
_LOCK_WATCHER = Path(__file__).with_name("lock_watcher.py")
#: Seconds for the process of `lock_watcher.py` to end with the command.
_END_SECONDS = 1.0


class Watchdog:
    """Watches the current tasks of threads.

    Args:
      board: Board of the process.
      others: Returns the tasks of worker processes.
      tell: Prints a line.
      end: Ends the process with an exit code; it need not return.
      fail: Prints the line that says why it ends; by default `tell`.

    Attributes:
      stuck_after: Seconds after which the command ends.
      since: Time at which the process continued after it was stopped; tasks are timed from then on.
    """

    def __init__(
        self,
        board: Underway,
        tell: Callable[[str], None],
        end: Callable[[int], None],
        others: Callable[[], Sequence[Task]] = lambda: (),
        fail: Callable[[str], None] | None = None,
    ) -> None:
        self.stuck_after = STUCK_AFTER_MINUTES * 60
        self.since = float("-inf")
        self._others = others
        self._board = board
        self._tell = tell
        self._fail = fail or tell
        self._end = end
        self._named: set[Task] = set()

    def look(self, now: float) -> None:
        """Names files that took long, and ends the process if one took too long.

        Args:
          now: Seconds on the monotonic clock.
        """
        tasks = sorted((*self._board.tasks(), *self._others()), key=lambda task: task.started)
        for task in tasks:
            seconds = now - max(task.started, self.since)
            if seconds >= self.stuck_after:
                self._fail(
                    f"stuck: {printable(task.place)} has taken {seconds / 60:.1f} minutes ({task.stage}); to "
                    "leave it out, move it out of the input, or else raise --stuck_after, then run again."
                )
                self._end(int(ExitCode.ENGINE))
                return
            if seconds >= NAMED_AFTER and task not in self._named:
                self._named.add(task)
                self._tell(f"{printable(task.place)} has taken {seconds:.0f} seconds so far ({task.stage})")
        self._named &= set(tasks)


def end_process(code: int) -> None:
    """Ends this process and its children at once, even if threads are inside a decoder."""
    for process in descendants():
        if process.is_worker or process.is_child:
            process.send(signal.SIGKILL)
    os._exit(code)


def _tasks_of_workers() -> list[Task]:
    """Returns the tasks of the worker processes on this machine."""
    folder = os.environ.get(BOARDS_VARIABLE)
    return tasks_of_others(Path(folder)) if folder else []


#: The watchdog of this process.
WATCHDOG = Watchdog(
    UNDERWAY, log.info, end_process, _tasks_of_workers, lambda line: log.end(line, int(ExitCode.ENGINE))
)


@contextlib.contextmanager
def watched(last_words: Callable[[], str] = lambda: "interrupted; run again.") -> Iterator[None]:
    """Lets the watchdog look every second while the block runs.

    Args:
      last_words: Returns the message if the command is interrupted while a decoder holds Python's lock.
    """
    WATCHDOG.stuck_after = STUCK_AFTER_MINUTES * 60
    done = threading.Event()

    def keep_looking() -> None:
        looked = time.monotonic()
        while not done.wait(_PAUSE_SECONDS):
            now = time.monotonic()
            if now - looked > _GAP_SECONDS:
                WATCHDOG.since = now
            looked = now
            watcher.note(now)
            WATCHDOG.look(now)

    with _LockWatcher(last_words) as watcher:
        threading.Thread(target=keep_looking, name="shardwright-watchdog", daemon=True).start()
        try:
            yield
        finally:
            done.set()


class _LockWatcher:
    """Starts `lock_watcher.py` with the first task, and ends it with the command.

    Only the main thread of a process has one, since only it handles signals. Commands within a command, and
    worker processes, use the existing one.
    """

    def __init__(self, last_words: Callable[[], str]) -> None:
        self._last_words = last_words
        self._process: subprocess.Popen[bytes] | None = None
        self._end = contextlib.ExitStack()
        self._signals = -1

    def __enter__(self) -> _LockWatcher:
        if threading.current_thread() is threading.main_thread() and BOARDS_VARIABLE not in os.environ:
            with contextlib.suppress(OSError):
                self._begin()
        return self

    def __exit__(self, *raised: object) -> None:
        self._end.close()

    def note(self, now: float) -> None:
        """Records on the board that the watchdog looked."""
        board = UNDERWAY.board
        if board is not None:
            with contextlib.suppress(ValueError):  # the board may be closed already
                board.head(now, WATCHDOG.stuck_after)

    def _begin(self) -> None:
        folder = Path(self._end.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        self._end.callback(UNDERWAY.close_board)
        self._end.callback(setattr, UNDERWAY, "on_first", UNDERWAY.on_first)
        os.environ[BOARDS_VARIABLE] = str(folder)
        self._end.callback(os.environ.pop, BOARDS_VARIABLE, None)
        self._signals, wakeup = os.pipe()
        self._end.callback(os.close, self._signals)
        self._end.callback(self._wait)
        self._end.callback(os.close, wakeup)
        os.set_blocking(wakeup, False)
        # The C part of Python's signal handling writes each signal's number there, even without the lock.
        before = signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        self._end.callback(signal.set_wakeup_fd, before)
        self._end.callback(setattr, UNDERWAY, "on_first", None)  # late threads begin nothing more
        UNDERWAY.on_first = lambda: self._start(folder)

    def _start(self, folder: Path) -> None:
        board = UNDERWAY.open_board(folder)
        if board is None or not sys.executable:
            return
        self.note(time.monotonic())
        pipes = [exit_pipe(int(code)) for code in (ExitCode.ENGINE, ExitCode.INTERRUPTED)]
        # Signals that end the command must not end its watcher, so it inherits the signals blocked here.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", str(_LOCK_WATCHER), str(os.getpid()), str(board.path)),
                    *(self._last_words(), log.style(), *map(str, pipes)),
                ],
                stdin=self._signals,
                stdout=subprocess.DEVNULL,
                stderr=_descriptor_of_stderr(),
                pass_fds=[pipe for pipe in pipes if pipe],
                cwd="/",
            )
        except (OSError, ValueError):
            pass  # the watchdog's thread still works
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def _wait(self) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _descriptor_of_stderr() -> int | None:
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        return None
