"""Reports files that take long in a worker process of a cluster, where no local command can watch.

The messages go to Python's logging, which Beam passes to the runner. On Dataflow they are in the job's log.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from shardwright.schemas.image_ref import printable
from shardwright.transforms.concurrency.underway import UNDERWAY, Task, Underway
from shardwright.transforms.concurrency.workers import job_options

#: Beam experiment that passes `--stuck_after` in minutes to workers, unless it has the default value.
EXPERIMENT = "shardwright_stuck_after"
DEFAULT_MINUTES = 10.0
_NAMED_AFTER = 30.0
_PAUSE_SECONDS = 1.0
#: Modules that run as the main program of a worker process.
_WORKER = "apache_beam.runners.worker"
_EXIT_CODE = 3
_LOGGER = logging.getLogger("shardwright.watchdog")


class WorkerWatchdog:
    """Watches the tasks of a worker process.

    Args:
      underway: tasks of the process.
      stuck_after: seconds after which the process ends, so that the runner fails the bundle.
      end: function that ends the process.
    """

    def __init__(self, underway: Underway, stuck_after: float, end: Callable[[], None]) -> None:
        self._underway = underway
        self._stuck_after = stuck_after
        self._end = end
        self._named: set[Task] = set()

    def look(self, now: float) -> bool:
        """Logs a warning for each file that takes long, and ends the process if one takes too long.

        Args:
          now: current time in seconds on the monotonic clock.

        Returns:
          Whether the process continues.
        """
        tasks = self._underway.tasks()
        for task in tasks:
            seconds, place = now - task.started, printable(task.place)
            if seconds >= self._stuck_after:
                _LOGGER.error(
                    "stuck: %s has taken %.1f minutes (%s). This worker process ends, and the bundle fails. "
                    "To leave it out, move it out of the input, or raise --stuck_after; then run again",
                    place, seconds / 60, task.stage,
                )  # fmt: skip
                self._end()
                return False
            if seconds >= _NAMED_AFTER and task not in self._named:
                self._named.add(task)
                _LOGGER.warning("%s has taken %.0f seconds so far (%s)", place, seconds, task.stage)
        self._named &= set(tasks)
        return True


def watch_worker() -> None:
    """Starts a thread that checks every second, if this is a worker process of Beam."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is None or not spec.name.startswith(_WORKER):
        return
    watchdog = WorkerWatchdog(UNDERWAY, 60 * stuck_after_minutes(job_options()), lambda: _end(main))

    def keep_looking() -> None:
        while watchdog.look(time.monotonic()):
            time.sleep(_PAUSE_SECONDS)

    threading.Thread(target=keep_looking, name="shardwright-watchdog", daemon=True).start()


def stuck_after_minutes(options: Any) -> float:
    """Returns the minutes after which a file counts as stuck, from the options of the job."""
    if options is None:
        return DEFAULT_MINUTES
    from apache_beam.options.pipeline_options import DebugOptions

    return float(options.view_as(DebugOptions).lookup_experiment(EXPERIMENT, DEFAULT_MINUTES))


def _end(main: Any) -> None:
    """Ends this worker process after Beam has sent its log to the runner."""
    terminate = getattr(main, "terminate_sdk_harness", None)
    if terminate is not None:
        terminate()
    os._exit(_EXIT_CODE)
