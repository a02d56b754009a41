"""Waits for worker processes and reports how they ended. Imports nothing but the standard library.

`worker_processes.py` says what for. The process that forked the workers becomes this program, so they are its
children. It is small, because it stays as long as they do.

Its arguments: the descriptor of the pipe for reports, and the numbers of the workers, each as NUMBER=PID.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping

#: Signals that ask the workers to end. This program ends after them.
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def report(pipe: int, number: int, kind: str, value: int) -> None:
    """Writes a line of a report; the command that reads it may have ended."""
    with contextlib.suppress(BrokenPipeError):
        os.write(pipe, f"{number} {kind} {value}\n".encode("ascii"))


def report_end(pipe: int, numbers: Mapping[int, int], pid: int, status: int) -> None:
    """Reports the end of a worker.

    Args:
      pipe: Descriptor of the pipe for reports.
      numbers: Process number -> number of the worker.
      pid: Number of the process that ended.
      status: How it ended, as in `os.wait`.
    """
    if pid in numbers:
        report(pipe, numbers[pid], "code", os.waitstatus_to_exitcode(status))


def main(arguments: list[str]) -> None:
    """Waits for all workers."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    pipe = int(arguments[0])
    numbers = {int(pid): int(number) for number, _, pid in (word.partition("=") for word in arguments[1:])}
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return
        report_end(pipe, numbers, pid, status)


if __name__ == "__main__":
    main(sys.argv[1:])
