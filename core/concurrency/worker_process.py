"""A Python process that runs functions for this one, so that a decoder that crashes costs one image.

`WorkerProcess` is the end of the program that starts it, `serve` the main program of the process.

Process pools start their processes with `multiprocessing`, which imports the program's main module in each of
them. A script that calls `shardwright.convert` at its top level would then start itself again and again.
So only the pipes of `multiprocessing` are used here.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from shardwright.core.concurrency.resources import set_worker_processes
from shardwright.core.concurrency.underway import UNDERWAY, Task
from shardwright.schemas.log_lines import Forgiving, LogRules

#: The process imports modules where this one finds them, and nothing else of it.
_PROGRAM = """\
import sys
sys.path[:] = sys.argv[3:]
from shardwright.core.concurrency.worker_process import serve
serve(int(sys.argv[1]), int(sys.argv[2]))
"""
#: Each processor has a process, and NumPy's linear algebra would start a thread for each processor in all.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
#: Index of the current item (-1: none), time at which its work began, lengths of place and stage.
_HEAD = struct.Struct("<qdHH")
BOARD_BYTES, _STAGE_BYTES = 4096, 32
_PLACE_BYTES = BOARD_BYTES - _HEAD.size - _STAGE_BYTES
#: Signals that end a process whose library has a bug.
_CRASHES = {
    signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP
}  # fmt: skip
#: Seconds in which a process whose connection broke has ended.
_END_SECONDS = 5.0


class Board:
    """What a process works on, in memory that it shares with the process that started it.

    It can be read after the process has crashed, and while a decoder holds its interpreter lock. Each head is
    copied as a whole, because `struct.pack_into` first fills its place with zeros. A reader could then see a
    step that began when the machine started.

    Args:
      descriptor: Descriptor of an open file of at least `BOARD_BYTES` bytes.
    """

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, BOARD_BYTES)
        self._item = -1

    def begin_item(self, index: int) -> None:
        """Notes the item that the process works on from now on; -1 for none."""
        self._item = index
        self.write(None)

    def write(self, task: Task | None) -> None:
        """Notes the current step of the work on the item; None between two steps."""
        if task is None:
            self._map[: _HEAD.size] = _HEAD.pack(self._item, time.monotonic(), 0, 0)
            return
        place = task.place.encode(errors="replace")[-_PLACE_BYTES:]
        stage = task.stage.encode()[:_STAGE_BYTES]
        self._map[_HEAD.size : _HEAD.size + len(place) + len(stage)] = place + stage
        self._map[: _HEAD.size] = _HEAD.pack(self._item, task.started, len(place), len(stage))

    def read(self) -> tuple[int, Task | None]:
        """Returns the index of the current item, and the current step; -1 and None if there are none."""
        item, started, place, stage = _HEAD.unpack(self._map[: _HEAD.size])
        text = self._map[_HEAD.size : _HEAD.size + place + stage]
        task = Task(text[:place].decode(errors="replace"), text[place:].decode(errors="replace"), started)
        return item, task if stage else None


class WorkerDied(Exception):
    """A worker process ended while it ran a function.

    Attributes:
      exit_code: As in `subprocess`: minus the number of the signal that ended it, or its exit status.
      item: Index of the item that it worked on; -1 if it had begun none.
      task: The step that it had begun last, if known.
    """

    def __init__(self, exit_code: int, item: int, task: Task | None) -> None:
        super().__init__(f"A worker process ended with exit code {exit_code}.")
        self.exit_code = exit_code
        self.item = item
        self.task = task

    @property
    def is_crash(self) -> bool:
        """Whether the function itself ended the process: by a bug in a library, or by an exit."""
        return self.exit_code >= 0 or -self.exit_code in _CRASHES

    @property
    def how(self) -> str:
        """How the process ended, for messages."""
        if self.exit_code >= 0:
            return f"exit code {self.exit_code}"
        try:
            return signal.Signals(-self.exit_code).name
        except ValueError:
            return f"signal {-self.exit_code}"


class PackedFunction(NamedTuple):
    """A pickled function of one item, which a worker process keeps for the next calls.

    Attributes:
      digest: Digest of the pickled function.
      data: The pickled function.
    """

    digest: bytes
    data: bytes


class WorkerProcess:
    """A process that runs functions, one call at a time.

    It ends when this process closes it or ends itself.

    Args:
      processes: Number of such processes, which share the memory of the machine.
      preload: Module that it imports at once, while this process does other work; empty for none.

    Raises:
      OSError: If no further process can be started.
    """

    def __init__(self, processes: int, preload: str = "") -> None:
        self._connection, theirs = Pipe()
        self._sent: set[bytes] = set()
        with theirs, tempfile.TemporaryFile() as board:
            board.write(bytes(BOARD_BYTES))  # on a full disk, the first use of a hole would end this process
            board.flush()
            self._board = Board(board.fileno())
            self._board.begin_item(-1)
            descriptors = theirs.fileno(), board.fileno()
            path = [folder or os.getcwd() for folder in sys.path]
            # Ctrl-C reaches all processes of a terminal, and must not end the new one while it starts.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _PROGRAM, *map(str, descriptors), *path],
                    stdin=subprocess.DEVNULL,
                    stdout=_stdout(),
                    pass_fds=descriptors,
                    env=_ENVIRONMENT | os.environ,
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._connection.send((processes, preload, LogRules.current()))

    def call(self, function: PackedFunction, items: Sequence[Any]) -> list[Any]:
        """Runs a function for each item, in order, and returns the results.

        Raises:
          WorkerDied: If the process ended.
          Exception: What the function raised.
        """
        new = b"" if function.digest in self._sent else function.data
        try:
            request = pickle.dumps((function.digest, new, items), pickle.HIGHEST_PROTOCOL)
            self._connection.send_bytes(request)
            results, error = self._connection.recv()
        except (OSError, EOFError) as broken:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
            self._process.kill()  # it may have closed the connection and go on
            raise WorkerDied(self._process.wait(), *self._board.read()) from broken
        self._sent.add(function.digest)
        if error is not None:
            raise error
        return results  # type: ignore[no-any-return]

    def task(self) -> Task | None:
        """Returns what the process works on; None if it waits."""
        return self._board.read()[1]

    def close(self) -> None:
        """Ends the process, which has answered each call, and waits for its end."""
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def kill(self) -> None:
        """Ends the process at once. It writes no files, so nothing is left behind."""
        self._process.kill()


def _stdout() -> int | None:
    """Returns where this process prints, which is standard error for `--json`; None if it is no file."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return sys.stdout.fileno()
    return None


def serve(connection: int, board: int) -> None:
    """Runs the functions that the parent sends until it closes the connection or ends.

    Args:
      connection: Descriptor of a socket to the parent.
      board: Descriptor of the file of the `Board`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal
    # It was blocked until here, and would stay so in programs that a function starts.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = Connection(connection)
    # A function must not fail because nobody reads what it prints any more. Either stream may be closed.
    sys.stdout, sys.stderr = (stream and Forgiving(stream) for stream in (sys.stdout, sys.stderr))
    shown = Board(board)
    UNDERWAY.note = shown.write
    processes, preload, log_rules = parent.recv()
    set_worker_processes(processes)
    log_rules.apply()
    if preload:
        import_module(preload)
    functions: dict[bytes, Callable[[Any], Any]] = {}
    while True:
        try:
            request = parent.recv_bytes()
        except (EOFError, OSError):
            return
        answer = _run(functions, request, shown)
        # What the function printed: the parent may end this process at any time after the answer.
        if sys.stdout:
            sys.stdout.flush()
        parent.send_bytes(answer)


def _run(functions: dict[bytes, Callable[[Any], Any]], request: bytes, board: Board) -> bytes:
    """Returns the pickled results of a call, and the exception that ended it, if any."""
    results: list[Any] = []
    failure: Exception | None = None
    try:
        digest, function, items = pickle.loads(request)
        if function:
            functions[digest] = pickle.loads(function)
        for index, item in enumerate(items):
            board.begin_item(index)
            results.append(functions[digest](item))
    except Exception as error:
        failure = error
        failure.add_note(f"In a worker process:\n{traceback.format_exc()}")
    board.begin_item(-1)
    if failure is not None:
        try:
            pickle.loads(pickle.dumps(failure))
        except Exception:  # an exception of another library may not survive this
            failure = RuntimeError(f"{type(failure).__name__}: {failure}")
    return pickle.dumps((results, failure), pickle.HIGHEST_PROTOCOL)
