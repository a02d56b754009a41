"""Finds out how worker processes ended, of which Beam tells only that a connection broke."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Iterator

from shardwright.pipelines.beam_patches import noted_thread_errors
from shardwright.schemas.errors import EngineError

#: What the thread that waits for a worker process raises, where nobody sees it.
_ENDED = re.compile(r"Worker subprocess exited with return code (-?\d+)")
#: What a shell adds to the number of the signal that killed its child.
_SHELL = 128
#: Seconds between a broken connection and the moment at which the end of its process is known.
_PATIENCE = 2.0
_PAUSE_SECONDS = 0.02


class WorkerEnds:
    """Notes how worker processes ended.

    Attributes:
      codes: their exit codes, as `subprocess` gives them.
    """

    def __init__(self) -> None:
        self.codes: list[int] = []

    def note(self, error: BaseException | None) -> None:
        """Notes the end of a worker process, if that is what ended a thread."""
        match = _ENDED.search(str(error))
        if match:
            self.codes.append(int(match[1]))

    def wait(self) -> None:
        """Gives the end of a process whose connection broke some time to become known."""
        deadline = time.monotonic() + _PATIENCE
        while not self.codes and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)

    def as_error(self) -> EngineError | None:
        """Returns the error that the first of the ends stands for; None if there was none."""
        return EngineError(describe_end(self.codes[0])) if self.codes else None


def describe_end(code: int) -> str:
    """Returns what the exit code of a worker process says, in one sentence."""
    number = -code if code < 0 else code - _SHELL
    try:
        name = signal.Signals(number).name
    except ValueError:
        return (
            f"A worker process ended by itself (exit code {code}); see the full log with --verbose, "
            "fix that and run again with --resume."
        )
    if number == signal.SIGKILL:
        return (
            "A worker process was killed (signal 9, SIGKILL), probably because the machine ran out of memory;"
            " use fewer workers (--direct_num_workers) or a larger machine, and run again with --resume."
        )
    return (
        f"A worker process was killed (signal {number}, {name}); look at the system's log and at --verbose, "
        "fix that and run again with --resume."
    )


@contextlib.contextmanager
def noted_worker_ends() -> Iterator[WorkerEnds]:
    """Notes how worker processes end while the block runs."""
    ends = WorkerEnds()
    with noted_thread_errors(ends.note):
        yield ends
