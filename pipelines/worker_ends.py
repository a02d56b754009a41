"""Finds out how worker processes ended, since Beam reports only a broken connection."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Iterator

from shardwright.pipelines.beam_patches import noted_thread_errors
from shardwright.schemas.errors import EngineError

#: Exception of the thread that waits for a worker process, which nobody sees.
_ENDED = re.compile(r"Worker subprocess exited with return code (-?\d+)")
#: Number that a shell adds to the signal that killed its child.
_SHELL = 128
#: Seconds to wait after a broken connection until the end of its process is known.
_PATIENCE = 2.0
_PAUSE_SECONDS = 0.02


class WorkerEnds:
    """Records how worker processes ended.

    Attributes:
      codes: Their exit codes, as in `subprocess`.
    """

    def __init__(self) -> None:
        self.codes: list[int] = []

    def note(self, error: BaseException | None) -> None:
        """Records the end of a worker process, if that ended a thread."""
        match = _ENDED.search(str(error))
        if match:
            self.codes.append(int(match[1]))

    def wait(self) -> None:
        """Waits until the end of a process is known after its connection broke."""
        deadline = time.monotonic() + _PATIENCE
        while not self.codes and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)

    def as_error(self) -> EngineError | None:
        """Returns the error for the first end; None if there was none."""
        return EngineError(describe_end(self.codes[0])) if self.codes else None


def describe_end(code: int) -> str:
    """Returns the meaning of a worker process's exit code, in one sentence."""
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
    """Records how worker processes end while the block runs."""
    ends = WorkerEnds()
    with noted_thread_errors(ends.note):
        yield ends
