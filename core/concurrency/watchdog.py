"""Names a file that takes long, and ends a process that is stuck.

The contents of a dataset never depend on this clock: a command that is ended has left nothing out.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from shardwright.core.concurrency.resources import experiment, job_options, values_of
from shardwright.core.concurrency.underway import Task
from shardwright.schemas.codes import ExitCode
from shardwright.schemas.plain_text import printable

#: Beam experiment that passes `--stuck_after` in minutes to workers, unless it has the default value.
STUCK_EXPERIMENT = "shardwright_stuck_after"
#: Modules that run as the main program of an engine's worker process.
_ENGINE_WORKER = "apache_beam.runners.worker"
_LOGGER = logging.getLogger("shardwright.watchdog")
#: Default of `--stuck_after`: minutes after which a file is stuck.
STUCK_AFTER_MINUTES = 10.0
#: Seconds after which a slow file is named.
NAMED_AFTER = 30.0
_PAUSE_SECONDS = 1.0
#: Seconds beyond the limit after which Python itself ends the process.
_LATER_SECONDS = 60.0
#: A longer time in seconds between two checks shows that this process was stopped, so no file is stuck.
_GAP_SECONDS = 5.0


@dataclass(eq=False)
class Watchdog:
    """Watches the current tasks of threads and worker processes.

    Attributes:
      tasks: Returns the current tasks.
      tell: Prints a line.
      end: Ends the process, with a line that says why; it need not return.
      stuck_after: Seconds after which the process ends.
      since: Time at which the process continued after it was stopped; tasks are timed from then on.
      named: Tasks that were named because they take long.
    """

    tasks: Callable[[], Sequence[Task]]
    tell: Callable[[str], None]
    end: Callable[[str], None]
    stuck_after: float = STUCK_AFTER_MINUTES * 60
    since: float = float("-inf")
    named: set[Task] = field(default_factory=set)

    def look(self, now: float) -> None:
        """Names files that took long, and ends the process if one took too long.

        Args:
          now: Seconds on the monotonic clock.
        """
        tasks = sorted(self.tasks(), key=lambda task: task.started)
        for task in tasks:
            seconds = now - max(task.started, self.since)
            if seconds >= self.stuck_after:
                self.end(
                    f"stuck: {printable(task.place)} has taken {seconds / 60:.1f} minutes ({task.stage}); to "
                    "leave it out, move it out of the input, or else raise --stuck_after, then run again."
                )
                return
            if seconds >= NAMED_AFTER and task not in self.named:
                self.named.add(task)
                self.tell(f"{printable(task.place)} has taken {seconds:.0f} seconds so far ({task.stage})")
        self.named &= set(tasks)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Looks every second while the block runs.

        If C code in this process holds Python's lock, no thread can look. Then Python itself prints where
        each thread is and ends the process, with exit code 1. Decoders in worker processes cannot cause this.
        """
        stop = threading.Event()
        thread = self.start(stop)
        try:
            yield
        finally:
            stop.set()
            thread.join()  # or it might ask Python for an end after the next line
            faulthandler.cancel_dump_traceback_later()

    def start(self, stop: threading.Event) -> threading.Thread:
        """Starts a thread that looks every second until an event is set, and returns it."""
        thread = threading.Thread(
            target=self._keep_looking, args=(stop,), name="shardwright-watchdog", daemon=True
        )
        thread.start()
        return thread

    def _keep_looking(self, stop: threading.Event) -> None:
        looked = time.monotonic()
        while not stop.wait(_PAUSE_SECONDS):
            now = time.monotonic()
            if now - looked > _GAP_SECONDS:
                self.since = now
            looked = now
            self.look(now)
            with contextlib.suppress(AttributeError, OSError, ValueError):  # there is no standard error
                faulthandler.dump_traceback_later(self.stuck_after + _LATER_SECONDS, exit=True)


def watch_engine_worker(tasks: Callable[[], Sequence[Task]]) -> None:
    """Starts to watch this process, if an engine started it, where no local command can watch.

    The lines go to Python's logging, which Beam passes to the runner. On Dataflow they are in the job's log.
    """
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is None or not spec.name.startswith(_ENGINE_WORKER):
        return

    def end(line: str) -> None:
        _LOGGER.error("%s", line)
        terminate = getattr(main, "terminate_sdk_harness", None)
        if terminate is not None:  # Beam sends its log first
            terminate()
        os._exit(ExitCode.ENGINE)

    minutes = experiment(values_of(job_options()), STUCK_EXPERIMENT)
    seconds = 60 * float(minutes or STUCK_AFTER_MINUTES)
    Watchdog(tasks, _LOGGER.warning, end, seconds).start(threading.Event())
