"""Lists the processes that this one started. Needs /proc, which Linux has."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: Part of the command line of Beam's worker processes, and of the shell that starts each of them.
_WORKER = b"apache_beam.runners.worker"


class Process(NamedTuple):
    """A process.

    Attributes:
      pid: Number of the process. Another process may get the number after its end.
      began: Start time in ticks since the boot, which distinguishes processes with the same number.
      is_worker: Whether it is a worker process of Beam, or the shell that started one.
      is_child: Whether this process started it directly.
    """

    pid: int
    began: str
    is_worker: bool = False
    is_child: bool = True

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, unless the process has ended."""
        if self.is_running():
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)

    def is_running(self) -> bool:
        """Returns whether the process has not ended yet."""
        status = _status(self.pid)
        return status is not None and status[0] not in "ZXx" and status[19] == self.began


def descendants(of: int | None = None) -> list[Process]:
    """Returns the children of a process, their children, and so on.

    Args:
      of: Number of the process; None for this one.
    """
    children: dict[int, list[int]] = {}
    began: dict[int, str] = {}
    for pid, status in _all_processes():
        children.setdefault(int(status[1]), []).append(pid)
        began[pid] = status[19]
    own = os.getpid() if of is None else of
    found, left = [], [(pid, True) for pid in children.get(own, ())]
    while left:
        pid, is_child = left.pop()
        left += [(below, False) for below in children.get(pid, ())]
        found.append(Process(pid, began[pid], _WORKER in _command_line(pid), is_child))
    return found


def _all_processes() -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        status = _status(int(folder.name))
        if status is not None:
            yield int(folder.name), status


def _status(pid: int) -> list[str] | None:
    """Returns the fields of /proc/PID/stat after the name (state, parent, ...); None if it is missing."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    values = text.rpartition(")")[2].split()  # the name of a process may contain `)`
    return values if len(values) > 19 else None


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
