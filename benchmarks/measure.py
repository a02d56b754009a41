"""Runs one program as a whole process and measures its time and its memory.

This module and the harness use the standard library only: a child process starts out with the
peak memory of the process it was forked from, so a large harness would hide small competitors.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

INTERVAL = 0.2
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Measurement:
    """What one run cost.

    Attributes:
      seconds: of wall time, from the start of the process to its end.
      peak_mb: peak resident memory of the largest process, in 10^6 bytes.
      tree_mb: peak of the sum over all processes. Pages that they share count in each of them.
      exit_code: of the process; negative for a signal.
    """

    seconds: float
    peak_mb: float
    tree_mb: float
    exit_code: int


def resident_sizes(session: int) -> list[int]:
    """Reads the resident memory of all processes of a session.

    Sessions, unlike parents, still tell where a process came from when its parent has ended.

    Args:
      session: the session, which is the id of the process that began it.

    Returns:
      Bytes, one value per process.
    """
    sizes = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        # Processes end while the directory is read.
        with contextlib.suppress(OSError, IndexError, ValueError):
            # The command's name may hold spaces and brackets; the fields start after it.
            fields = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session:
                sizes.append(int(fields[21]) * PAGE)
    return sizes


class MemorySampler(threading.Thread):
    """Reads the memory of a session a few times a second.

    Attributes:
      largest: the largest single process seen, in bytes.
      total: the largest sum over all processes seen, in bytes.
    """

    def __init__(self, session: int) -> None:
        """Prepares the sampler.

        Args:
          session: what to watch.
        """
        super().__init__(daemon=True)
        self.largest = 0
        self.total = 0
        self._session = session
        self._done = threading.Event()

    def run(self) -> None:
        """Samples until `stop` is called."""
        while not self._done.wait(INTERVAL):
            sizes = resident_sizes(self._session)
            self.largest = max(self.largest, *sizes, 0)
            self.total = max(self.total, sum(sizes))

    def stop(self) -> None:
        """Ends the sampling."""
        self._done.set()
        self.join()


def _end_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def run_measured(command: Sequence[str], log: Path, timeout: float) -> Measurement:
    """Runs a command in a session of its own and measures it.

    Args:
      command: the program and its arguments.
      log: a file for what it prints.
      timeout: seconds after which it is killed.

    Returns:
      The measurement.
    """
    # Output still waiting for the disk belongs to the competitor before.
    os.sync()
    with log.open("wb") as output:
        start = time.perf_counter()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        sampler = MemorySampler(child.pid)
        sampler.start()
        alarm = threading.Timer(timeout, _end_group, [child.pid])
        alarm.start()
        try:
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            seconds = time.perf_counter() - start
        finally:
            alarm.cancel()
            sampler.stop()
            # Helpers that outlive the program would disturb the next competitor. The program is
            # not reaped yet, so its number cannot have passed to a process of somebody else.
            _end_group(child.pid)
            _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    # The rusage covers the child and all descendants it waited for; it misses no short peak.
    peak = max(usage.ru_maxrss * 1024, sampler.largest)
    return Measurement(seconds, peak / 1e6, max(peak, sampler.total) / 1e6, child.returncode)
