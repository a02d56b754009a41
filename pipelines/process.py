"""The process of a command: how it ends, after a signal or when it is stuck, and its temporary folder."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import fcntl
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from functools import cache, partial
from types import FrameType

import psutil

from shardwright.core.concurrency.resources import RUN_FOLDER
from shardwright.core.concurrency.watchdog import Watchdog
from shardwright.core.concurrency.worker_pool import current_tasks
from shardwright.pipelines import log
from shardwright.schemas.codes import ExitCode
from shardwright.schemas.errors import EngineError

#: Signals that ask a process to end.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds for this process to exit cleanly, and for its threads to return from decoders.
FORCE_SECONDS = 4.0
#: Seconds in which a repeated signal is ignored: `timeout` sends it to a process and then to its group.
_REPEATED_SECONDS = 2.0


def kill_children(others: Collection[psutil.Process] = ()) -> None:
    """Kills the processes that this one started, and those that they started.

    A process goes before its children, so that it cannot go on when one of them has ended.

    Args:
      others: Processes that go on.
    """
    for process in psutil.Process().children(recursive=True):  # each before those that it started itself
        if process not in others:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def end_process(code: ExitCode, message: str) -> None:
    """Ends this process and its children at once, even if threads are inside a decoder.

    Args:
      code: Exit code.
      message: The error; empty if the command has ended already.
    """
    if message:
        log.end(message, int(code))
    kill_children()
    os._exit(int(code))


#: The watchdog of this process.
WATCHDOG = Watchdog(current_tasks, log.info, partial(end_process, ExitCode.ENGINE))


class Ending:
    """The state of a process that is asked to end.

    Attributes:
      reason: Reason of the end, for the beginning of the message; empty for Ctrl-C, and before a signal.
      last_words: Message if the process has to be ended by force.
      is_over: Whether the block has ended.
      received: Time of the first signal on the monotonic clock; 0 before.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.last_words = "interrupted; run again."
        self.is_over = False
        self.received = 0.0
        self._others = psutil.Process().children(recursive=True)

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal.

        Worker processes write no files, so they are killed: their callers must not wait for them.

        Raises:
          KeyboardInterrupt: Always, unless the same signal came a moment ago.
        """
        now = time.monotonic()
        repeated = bool(self.received) and now - self.received < _REPEATED_SECONDS
        if not self.received:
            self.received = now
            if number != signal.SIGINT:
                self.reason = f"it was told to end ({signal.Signals(number).name}); "
            threading.Thread(target=self._end_by_force, daemon=True).start()
        kill_children(self._others)
        if not repeated:
            raise KeyboardInterrupt

    def _end_by_force(self) -> None:
        """Ends the process if it has not exited cleanly because a thread is inside a decoder."""
        time.sleep(FORCE_SECONDS)
        if self.is_over and not getattr(threading, "_SHUTTING_DOWN", False):
            return  # the command has ended, and its caller continues
        end_process(ExitCode.INTERRUPTED, "" if self.is_over else self.last_words)


def _pause(number: int, frame: FrameType | None) -> None:
    """Stops this process, as Ctrl-Z on a terminal does, until it is continued.

    Python would count the time and end the process when it continues.
    """
    faulthandler.cancel_dump_traceback_later()  # the watchdog asks for it again
    os.kill(os.getpid(), signal.SIGSTOP)


@contextlib.contextmanager
def graceful_shutdown() -> Iterator[Ending]:
    """Treats each signal that asks a process to end like Ctrl-C on a terminal while the block runs.

    Ctrl-Z stops the process for any time. A signal that is ignored stays ignored, as under `nohup`.
    """
    ending = Ending()
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    handlers = dict.fromkeys(ENDING, ending.receive) | {signal.SIGTSTP: _pause}
    before = {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) not in (signal.SIG_IGN, None)
    }
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        ending.is_over = True


@contextlib.contextmanager
def own_temporary_folder() -> Iterator[None]:
    """Puts all temporary files of the block and of its child processes into a folder of this process.

    If the folder cannot be created or locked, or in another thread than the main one, nothing changes.

    Raises:
      EngineError: If no folder for temporary files can be written.
    """
    try:
        base = tempfile.gettempdir()
    except FileNotFoundError as error:
        raise EngineError(
            f"{error.strerror}; free some space there or set TMPDIR to a folder that can be written, then "
            "run again with --resume."
        ) from error
    folder = base
    if threading.current_thread() is threading.main_thread() and RUN_FOLDER not in base:
        with contextlib.suppress(OSError):
            if not os.path.isdir(_folder_in(base, os.getpid())):  # something cleaned up there
                _folder_in.cache_clear()
            folder = _folder_in(base, os.getpid())
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    if folder != base:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        if folder != base:
            tempfile.tempdir = before
            os.environ.pop("TMPDIR")
            if variable is not None:
                os.environ["TMPDIR"] = variable


@cache
def _folder_in(base: str, pid: int) -> str:
    """Creates the folder of a process, and locks it until the process ends, however it ends.

    Other threads, and Beam's job servers, may use the folder until then. The folders of processes that were
    killed are removed.

    Raises:
      OSError: If the folder cannot be created or locked.
    """
    with os.scandir(base) as entries:
        others = [entry.path for entry in entries if entry.name.startswith(RUN_FOLDER)]
    for other in others:
        with contextlib.suppress(OSError):
            descriptor = os.open(other, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(other, ignore_errors=True)
            finally:
                os.close(descriptor)
    folder = tempfile.mkdtemp(prefix=RUN_FOLDER, dir=base)

    def remove() -> None:
        if os.getpid() == pid:  # not a fork
            shutil.rmtree(folder, ignore_errors=True)

    try:
        fcntl.flock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(folder)  # another process may have removed it as abandoned before it was locked
    except OSError:
        remove()
        raise
    atexit.register(remove)  # runs after the handlers with which Beam stops job servers that need the folder
    return folder
