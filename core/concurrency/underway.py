"""Tracks what the threads of this process are working on, so that a stuck file can be named."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

#: Items after which a quick loop reports progress.
_ITEMS_A_NOTE = 1000
#: When a step began that is paused.
PAUSED = float("inf")

Item = TypeVar("Item")


class Task(NamedTuple):
    """The current work of one thread.

    Attributes:
      place: Name of the file, for messages.
      stage: Current stage of the work.
      started: When the work began or last made progress, in seconds on the monotonic clock, which all
        processes of a machine share.
    """

    place: str
    stage: str
    started: float


@dataclass(slots=True, eq=False)
class Step:
    """One step of a thread's work.

    Attributes:
      place: Name of the file, for messages.
      stage: What is done with it. Empty for a wait, which hides the steps around it.
      started: When its work began or last made progress, as in `Task`; infinite while it is paused.
    """

    place: str
    stage: str
    started: float

    def progress(self) -> None:
        """Restarts the clock of the step unless it is paused: one more item of its work is done."""
        if self.started != PAUSED:
            self.started = time.monotonic()


class Underway:
    """The tasks of a process. Reading them needs no lock.

    Attributes:
      note: Function that gets the task of a worker process, which has one thread that works, whenever it
        changes; None elsewhere.
      steps: Thread -> its steps, the innermost last. The lists stay: another thread may end a step.
    """

    def __init__(self) -> None:
        self.note: Callable[[Task | None], None] | None = None
        self.steps: dict[int, list[Step]] = {}

    @contextlib.contextmanager
    def working_on(self, place: str, stage: str) -> Iterator[Step]:
        """Makes a block a step of this thread's work.

        A step that takes long for a good reason calls `progress` for each item that is done.

        >>> with UNDERWAY.working_on("images.tar.gz", "unpack") as step:
        ...     for _ in range(3):
        ...         step.progress()
        """
        thread = threading.get_ident()
        steps = self.steps.setdefault(thread, [])
        step = Step(place, stage, time.monotonic() if stage else PAUSED)
        steps.append(step)
        if self.note is not None:
            self.note(self.task_of(thread))
        try:
            yield step
        finally:
            steps.remove(step)  # it need not be the innermost one
            self._restart(thread)  # the clock of the step around it stood still while it ran

    def waiting(self) -> AbstractContextManager[Step]:
        """Returns a block in which this thread waits for other threads. Its file is not stuck meanwhile."""
        return self.working_on("", "")

    def progress(self) -> None:
        """Restarts the clock of the step that this thread is in, if it is in one."""
        self._restart(threading.get_ident())

    def _restart(self, thread: int) -> None:
        """Restarts the clock of the step that a thread is in, and notes it; without a step, neither."""
        if steps := self.steps.get(thread):
            steps[-1].progress()
            if self.note is not None:
                self.note(self.task_of(thread))

    def each(self, items: Iterable[Item], place: str, stage: str) -> Iterator[Item]:
        """Yields items. Getting the next item is a step of this thread; the work of the caller is not.

        Args:
          items: Any number of items.
          place: Name of the file or folder that they come from, for messages.
          stage: What is done with it.
        """
        with self.working_on(place, stage) as step:
            for item in items:
                step.started = PAUSED
                yield item
                step.started = time.monotonic()

    def passing(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yields the items of a quick loop, and reports progress for every thousandth."""
        for index, item in enumerate(items):
            if not index % _ITEMS_A_NOTE:
                self.progress()
            yield item

    def tasks(self) -> list[Task]:
        """Returns the current tasks, oldest first."""
        tasks = filter(None, map(self.task_of, self.steps.copy()))
        return sorted(tasks, key=lambda task: task.started)

    def task_of(self, thread: int) -> Task | None:
        """Returns the task of a thread: its innermost step that is not paused; None if it has none."""
        for step in tuple(self.steps.get(thread, ()))[::-1]:
            if not step.stage:
                return None
            if (started := step.started) != PAUSED:
                return Task(step.place, step.stage, started)
        return None


#: The tasks of this process.
UNDERWAY = Underway()
