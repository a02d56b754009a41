"""Names a file that one step has worked on for long, and ends a command that is stuck.

What a dataset contains never depends on this clock: a command that is ended has left nothing out.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

from shardwright.pipelines.processes import descendants
from shardwright.schemas.codes import ExitCode
from shardwright.schemas.image_ref import printable
from shardwright.transforms.concurrency.underway import UNDERWAY, Task, Underway

#: Minutes after which a command is stuck, unless `--stuck_after` says something else.
STUCK_AFTER_MINUTES = 10.0
#: Seconds after which a file is named.
NAMED_AFTER = 30.0
_PAUSE_SECONDS = 1.0


class Watchdog:
    """Looks at what threads are working on.

    Args:
      board: of the process.
      tell: prints a line.
      end: ends the process with an exit code; it need not return.

    Attributes:
      stuck_after: seconds after which the command ends.
    """

    def __init__(self, board: Underway, tell: Callable[[str], None], end: Callable[[int], None]) -> None:
        self.stuck_after = STUCK_AFTER_MINUTES * 60
        self._board = board
        self._tell = tell
        self._end = end
        self._named: set[Task] = set()

    def look(self, now: float) -> None:
        """Names files that took long, and ends the process if one took too long.

        Args:
          now: seconds on the monotonic clock.
        """
        tasks = self._board.tasks()
        for task in tasks:
            seconds = now - task.begun
            if seconds >= self.stuck_after:
                self._tell(
                    f"stuck: {printable(task.place)} has taken {seconds / 60:.1f} minutes ({task.stage}); to "
                    "leave it out, move it out of the input, or else raise --stuck_after, then run again."
                )
                self._end(int(ExitCode.ENGINE))
                return
            if seconds >= NAMED_AFTER and task not in self._named:
                self._named.add(task)
                self._tell(f"{printable(task.place)} has taken {seconds:.0f} seconds so far ({task.stage})")
        self._named &= set(tasks)


def tell(line: str) -> None:
    """Prints a line to stderr, whatever becomes of it."""
    with contextlib.suppress(OSError, ValueError):
        print(f"shardwright: {line}", file=sys.stderr, flush=True)


def end_process(code: int) -> None:
    """Ends this process and its children at once, also where threads are inside of a decoder."""
    for process in descendants():
        if process.is_worker or process.is_child:
            process.send(signal.SIGKILL)
    os._exit(code)


#: The watchdog of this process.
WATCHDOG = Watchdog(UNDERWAY, tell, end_process)


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Has the watchdog look every second while the block runs."""
    WATCHDOG.stuck_after = STUCK_AFTER_MINUTES * 60
    done = threading.Event()

    def keep_looking() -> None:
        while not done.wait(_PAUSE_SECONDS):
            WATCHDOG.look(time.monotonic())

    threading.Thread(target=keep_looking, name="shardwright-watchdog", daemon=True).start()
    try:
        yield
    finally:
        done.set()
