"""Ends a command that is stuck, and all of its processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

import psutil

from shardwright.core.concurrency.converters import current_tasks
from shardwright.core.concurrency.watchdog import Watchdog
from shardwright.pipelines import log
from shardwright.schemas.codes import ExitCode


def children() -> set[psutil.Process]:
    """Returns the processes that this one started, and those that they started."""
    return set(psutil.Process().children(recursive=True))


def kill_children(others: Collection[psutil.Process] = ()) -> None:
    """Kills the processes that this one started, and those that they started.

    Args:
      others: Processes that go on.
    """
    for process in children().difference(others):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def end_process(code: int) -> None:
    """Ends this process and its children at once, even if threads are inside a decoder."""
    kill_children()
    os._exit(code)


def _end_stuck(line: str) -> None:
    log.end(line, int(ExitCode.ENGINE))
    end_process(int(ExitCode.ENGINE))


#: The watchdog of this process.
WATCHDOG = Watchdog(current_tasks, log.info, _end_stuck)
