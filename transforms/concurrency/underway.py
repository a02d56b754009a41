"""What the threads of this process are working on, so that one that is stuck can be named."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple


class Task(NamedTuple):
    """What one thread is working on.

    Attributes:
      place: the file, as people know it.
      stage: what is done with it.
      begun: when that began, in seconds on the monotonic clock.
    """

    place: str
    stage: str
    begun: float


class Underway:
    """The board of a process: each thread's task. Reading it needs no lock."""

    def __init__(self) -> None:
        self._tasks: dict[int, Task] = {}

    @contextlib.contextmanager
    def working_on(self, place: str, stage: str) -> Iterator[None]:
        """Says what this thread works on during the block; afterwards it is what it was before."""
        thread = threading.get_ident()
        before = self._tasks.get(thread)
        self._tasks[thread] = Task(place, stage, time.monotonic())
        try:
            yield
        finally:
            if before is None:
                self._tasks.pop(thread, None)
            else:
                self._tasks[thread] = before._replace(begun=time.monotonic())

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Says that this thread waits for others during the block, which is no fault of its file."""
        thread = threading.get_ident()
        before = self._tasks.pop(thread, None)
        try:
            yield
        finally:
            if before is not None:
                self._tasks[thread] = before._replace(begun=time.monotonic())

    def tasks(self) -> list[Task]:
        """Returns what is being worked on, the oldest first."""
        return sorted(self._tasks.copy().values(), key=lambda task: task.begun)


#: The board of this process.
UNDERWAY = Underway()
