"""Runs a program as a process and measures its time and its memory.

This module and the harness use only the standard library. A child process starts with the peak memory of the
process that forked it, so a large harness would hide small competitors.
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
    """Measurements of one run.

    Attributes:
      seconds: Wall time from the start of the process to its end.
      peak_mb: Peak resident memory of the largest process, in 10^6 bytes.
      tree_mb: Peak of the sum over all processes, in 10^6 bytes; shared pages count for each process.
      exit_code: Exit code of the process; negative for a signal.
      processor_seconds: Processor time of the process and its children, in user and system mode.
    """

    seconds: float
    peak_mb: float
    tree_mb: float
    exit_code: int
    processor_seconds: float = 0.0


def resident_sizes(session: int) -> list[int]:
    """Reads the resident memory of all processes of a session.

    A session still identifies its processes after their parents have ended.

    Args:
      session: Id of the session, which is the id of its first process.

    Returns:
      One number of bytes per process.
    """
    sizes = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        # Processes may end while the directory is read.
        with contextlib.suppress(OSError, IndexError, ValueError):
            # The command's name may contain spaces and brackets; the fields follow it.
            fields = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session:
                sizes.append(int(fields[21]) * PAGE)
    return sizes


class MemorySampler(threading.Thread):
    """Reads the memory of a session several times per second.

    Attributes:
      largest: Size of the largest process so far, in bytes.
      total: Largest sum over all processes so far, in bytes.
    """

    def __init__(self, session: int) -> None:
        """Prepares the sampler.

        Args:
          session: Id of the session to watch.
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
        """Stops the sampling."""
        self._done.set()
        self.join()


def _end_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def run_measured(command: Sequence[str], log: Path, timeout: float) -> Measurement:
    """Runs a command in its own session and measures it.

    Args:
      command: The program and its arguments.
      log: File for its output.
      timeout: Seconds after which the command is killed.

    Returns:
      The measurement.
    """
    # Data that still waits for the disk belongs to the previous competitor.
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
            # Remaining helper processes would disturb the next competitor. The program has not been reaped
            # yet, so no other process can have its id.
            _end_group(child.pid)
            _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    # The rusage covers the child and all descendants that it waited for, and includes short peaks.
    peak = max(usage.ru_maxrss * 1024, sampler.largest)
    processor_seconds = usage.ru_utime + usage.ru_stime
    return Measurement(
        seconds, peak / 1e6, max(peak, sampler.total) / 1e6, child.returncode, processor_seconds
    )
