"""The processes that this one has started, as far as the system tells: Linux does, in /proc."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: What the command line of Beam's worker processes holds, and that of the shell that starts each of them.
_WORKER = b"apache_beam.runners.worker"


class Process(NamedTuple):
    """A process.

    Attributes:
      pid: its number, which another process gets some time after it has ended.
      began: when it began, in ticks since the boot: what tells it from that one.
      is_worker: whether it is a worker process of Beam, or the shell that started one.
      is_child: whether this process started it itself.
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
        """Whether the process has not ended yet."""
        status = _status(self.pid)
        return status is not None and status[0] not in "ZXx" and status[19] == self.began


def descendants(of: int | None = None) -> list[Process]:
    """Returns the processes that one has started, those that they have started, and so on.

    Args:
      of: the number of the process; None for this one.
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
    """Returns what /proc says of a process behind its name: state, parent, ...; None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    values = text.rpartition(")")[2].split()  # a process may have a `)` in its name
    return values if len(values) > 19 else None


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
