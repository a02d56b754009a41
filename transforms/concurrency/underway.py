"""Tracks what the threads of this process are working on, so that a stuck file can be named.

A command gives its processes a folder, in which each keeps a board: a small file that is mapped into memory.
Other processes can read it even while a decoder holds the interpreter lock of the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

#: Environment variable that names the folder of the boards to the worker processes of a command.
BOARDS_VARIABLE = "SHARDWRIGHT_BOARDS"
_SUFFIX = ".board"
#: A slot begins with the time at which its task began (0: it is free) and the lengths of place and stage.
_SLOT = struct.Struct("<dHH")
_SLOT_BYTES, _SLOTS = 1024, 256
_STAGE_BYTES = 32
_PLACE_BYTES = _SLOT_BYTES - _SLOT.size - _STAGE_BYTES
#: The first slot holds when the watchdog of the process looked last, and the seconds after which it ends it.
_HEAD = struct.Struct("<dd")
#: Seconds between two notes of a step's progress on the board.
_NOTED_EVERY = 1.0
#: Items after which a quick loop reports progress.
_ITEMS_A_NOTE = 1000
#: When a step began that is paused.
_PAUSED = float("inf")

Item = TypeVar("Item")


class Task(NamedTuple):
    """The current work of one thread.

    Attributes:
      place: name of the file, for messages.
      stage: current stage of the work.
      started: when the work began or last made progress, in seconds on the monotonic clock, which all
        processes of a machine share.
    """

    place: str
    stage: str
    started: float


class Board:
    """A file in which a process publishes what it is working on.

    Args:
      path: path of the file, which must not exist. It is locked as long as the process lives.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # Not "w+b": a late thread that opened the same board again would take the pages of the first away.
        self._file = open(path, "x+b")  # noqa: SIM115 - open as long as the board is there
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._file.truncate(_SLOT_BYTES * _SLOTS)
        self._map = mmap.mmap(self._file.fileno(), _SLOT_BYTES * _SLOTS)
        self._free = list(range(1, _SLOTS))

    def head(self, looked: float, stuck_after: float) -> None:
        """Writes when the watchdog of the process last checked, and the seconds until a file is stuck."""
        _HEAD.pack_into(self._map, 0, looked, stuck_after)

    def take(self) -> int:
        """Returns a free slot; 0 if there is none."""
        try:
            return self._free.pop()
        except IndexError:
            return 0

    def write(self, slot: int, task: Task | None) -> None:
        """Writes a task, or none, into a slot."""
        if not slot:
            return
        begin = slot * _SLOT_BYTES
        _SLOT.pack_into(self._map, begin, 0.0, 0, 0)
        if task is None:
            return
        place = task.place.encode(errors="replace")[-_PLACE_BYTES:]
        stage = task.stage.encode()[:_STAGE_BYTES]
        text = begin + _SLOT.size
        self._map[text : text + len(place) + len(stage)] = place + stage
        _SLOT.pack_into(self._map, begin, task.started, len(place), len(stage))

    def close(self) -> None:
        """Removes the file."""
        self._map.close()
        self._file.close()
        self.path.unlink(missing_ok=True)


def tasks_on(content: bytes) -> list[Task]:
    """Returns the tasks on a board, oldest first.

    Args:
      content: content of the board's file.
    """
    found = []
    for begin in range(_SLOT_BYTES, len(content), _SLOT_BYTES):
        started, place, stage = _SLOT.unpack_from(content, begin)
        if started:
            text = content[begin + _SLOT.size : begin + _SLOT.size + place + stage]
            found.append(Task(text[:place].decode(errors="replace"), text[place:].decode(), started))
    return sorted(found, key=lambda task: task.started)


def head_of(content: bytes) -> tuple[float, float]:
    """Returns when the watchdog of a board's process last checked, and its limit in seconds."""
    looked, stuck_after = _HEAD.unpack_from(content)
    return looked, stuck_after


def tasks_of_others(folder: Path) -> list[Task]:
    """Returns the tasks of other processes with a board in a folder; removes boards of ended processes."""
    found: list[Task] = []
    for path in folder.glob(f"*{_SUFFIX}"):
        if path.stem == str(os.getpid()):
            continue
        with contextlib.suppress(OSError), open(path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found += tasks_on(file.read())
            else:
                path.unlink()  # its process has ended
    return found


class Step:
    """One step of work, as a context manager: a task of the thread that enters it.

    Args:
      underway: The tasks of the process.
      place: Name of the file, for messages.
      stage: What is done with it. Empty for a wait, which hides the steps around it.
    """

    __slots__ = ("_noted", "_thread", "_underway", "place", "stage", "started")

    def __init__(self, underway: Underway, place: str, stage: str) -> None:
        self.place = place
        self.stage = stage
        self.started = _PAUSED
        self._underway = underway
        self._thread = 0
        self._noted = 0.0

    def __enter__(self) -> Step:
        self._thread = threading.get_ident()
        if self.stage:
            self.started = self._noted = time.monotonic()
        self._underway.begin(self, self._thread)
        return self

    def __exit__(self, *raised: object) -> None:
        self._underway.end(self, self._thread)

    def progress(self) -> None:
        """Restarts the clock of the step: one more item of its work is done.

        It may be called for each of many small items. Other processes learn of it once a second.
        """
        if self.started != _PAUSED:
            self.resume()

    def pause(self) -> None:
        """Stops the clock until `resume` is called: the thread does something else."""
        self.started = _PAUSED

    def resume(self) -> None:
        """Starts the clock again."""
        now = self.started = time.monotonic()
        if now - self._noted >= _NOTED_EVERY:
            self._noted = now
            self._underway.note(self._thread)

    def uncover(self) -> None:
        """Restarts the clock after a step inside this one has ended."""
        if self.started != _PAUSED:
            self.started = time.monotonic()
        self._noted = 0.0


class Underway:
    """The tasks of a process. Reading them needs no lock.

    Attributes:
      on_first: function that is called once, before the first task; it may give the process a board.
      board: board to which tasks are written too; None if no other process reads them.
    """

    def __init__(self) -> None:
        self.on_first: Callable[[], None] | None = None
        self.board: Board | None = None
        #: thread -> its steps, the innermost last. The lists stay: another thread may end a step.
        self._steps: dict[int, list[Step]] = {}
        self._slots: dict[int, int] = {}
        self._beginning = threading.Lock()

    def working_on(self, place: str, stage: str) -> Step:
        """Returns a step of this thread's work, to be entered with `with`.

        A step that takes long for a good reason calls `progress` for each item that is done.

        >>> with UNDERWAY.working_on("images.tar.gz", "unpack") as step:
        ...     for _ in range(3):
        ...         step.progress()
        """
        return Step(self, place, stage)

    def waiting(self) -> Step:
        """Returns a step in which this thread waits for other threads. Its file is not stuck meanwhile."""
        return Step(self, "", "")

    def progress(self) -> None:
        """Restarts the clock of the step that this thread is in, if it is in one."""
        steps = self._steps.get(threading.get_ident())
        if steps:
            steps[-1].progress()

    def each(self, items: Iterable[Item], place: str, stage: str) -> Iterator[Item]:
        """Yields items. Getting the next item is a step of this thread; the work of the caller is not.

        Args:
          items: Any number of items.
          place: Name of the file or folder that they come from, for messages.
          stage: What is done with it.
        """
        with self.working_on(place, stage) as step:
            for item in items:
                step.pause()
                yield item
                step.resume()

    def passing(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yields the items of a quick loop, and reports progress for every thousandth."""
        for number, item in enumerate(items):
            if not number % _ITEMS_A_NOTE:
                self.progress()
            yield item

    def tasks(self) -> list[Task]:
        """Returns the current tasks, oldest first."""
        found = filter(None, map(self._task, self._steps.copy()))
        return sorted(found, key=lambda task: task.started)

    def _task(self, thread: int) -> Task | None:
        """Returns the task of a thread: its innermost step that is not paused."""
        for step in tuple(self._steps.get(thread, ()))[::-1]:
            if not step.stage:
                return None
            if (started := step.started) != _PAUSED:
                return Task(step.place, step.stage, started)
        return None

    def begin(self, step: Step, thread: int) -> None:
        """Makes a step the innermost one of a thread."""
        if self.on_first is not None and step.stage:
            self._begin()
        steps = self._steps.get(thread)
        if steps is None:
            steps = self._steps[thread] = []
        steps.append(step)
        if self.board is not None:
            self.note(thread)

    def end(self, step: Step, thread: int) -> None:
        """Ends a step of a thread, which need not be the innermost one."""
        steps = self._steps[thread]
        steps.remove(step)
        if steps:
            steps[-1].uncover()
        if self.board is not None:
            self.note(thread)

    def note(self, thread: int) -> None:
        """Writes the task of a thread on the board, if there is one."""
        board = self.board
        if board is None:
            return
        task, slot = self._task(thread), self._slots.get(thread)
        try:
            if slot is None:
                if task is None:
                    return
                slot = self._slots[thread] = board.take() or self._slot_of_ended_thread()
            board.write(slot, task)  # a thread keeps its slot for its next task
        except ValueError:  # the board was closed in the meantime
            pass

    def _slot_of_ended_thread(self) -> int:
        """Returns a slot that a thread had which has ended; 0 if there is none."""
        running = {thread.ident for thread in threading.enumerate()}
        ended = next((thread for thread in [*self._slots] if thread not in running), None)
        return 0 if ended is None else self._slots.pop(ended, 0)

    def _begin(self) -> None:
        """Calls `on_first` while other threads wait, because one of them could stop it halfway."""
        with self._beginning:
            if self.on_first is not None:
                try:
                    self.on_first()
                finally:
                    self.on_first = None

    def open_board(self, folder: Path) -> Board | None:
        """Gives this process a board; returns None if that is not possible."""
        try:
            board = Board(folder / f"{os.getpid()}{_SUFFIX}")
        except OSError:
            return None
        self._slots.clear()
        self.board = board
        return board

    def leave_board(self) -> None:
        """Leaves the board to the process that opened it; this one is a fork, which nobody watches."""
        self.board = self.on_first = None

    def close_board(self) -> None:
        """Removes the board of this process."""
        board, self.board = self.board, None
        self._slots.clear()
        if board is not None:
            board.close()


def _join_command() -> None:
    """Gives a worker process of a command on this machine a board."""
    folder = os.environ.get(BOARDS_VARIABLE)
    if folder:
        UNDERWAY.open_board(Path(folder))
    else:
        from shardwright.transforms.concurrency.worker_watchdog import watch_worker

        watch_worker()


#: The tasks of this process.
UNDERWAY = Underway()
UNDERWAY.on_first = _join_command
