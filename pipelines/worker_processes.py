"""Starts worker processes as forks of one process that has imported everything they need.

Beam starts a new interpreter for each worker, and each imports Beam again. Here one process begins its
imports as soon as it is known that there will be workers, while the command itself imports Beam and builds
its graph. Each worker is then a fork of that process: the imports are paid once, and the workers share their
memory.

The process reads requests from one pipe and writes how workers ended into another. It has one thread of
Python's and holds no connection, so it can be forked. When all workers have started it becomes
`worker_reaper.py`, a small program that only waits for them.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

#: Beam's main program of worker processes.
WORKER_MAIN = "apache_beam.runners.worker.sdk_worker_main"
#: The program that imports and forks.
_PROGRAM = ("-m", "shardwright.pipelines.beam_worker")
#: Seconds for the process that forks to end after its last worker.
_END_SECONDS = 1.0
#: Exit code of a worker whose own is unknown, because the process that forked it was killed.
_KILLED = -9


class ForkedWorker:
    """A worker process, with the methods of `subprocess.Popen` that Beam uses.

    Attributes:
      pid: Number of the process; 0 until it has started.
      returncode: Exit code as in `subprocess`; None while the process runs.
    """

    def __init__(self) -> None:
        self.pid = 0
        self.returncode: int | None = None
        self._ended = threading.Event()

    def end(self, code: int) -> None:
        """Records the end of the process."""
        self.returncode = code
        self._ended.set()

    def wait(self, timeout: float | None = None) -> int | None:
        """Waits for the end of the process, and returns its exit code; None if it still runs."""
        self._ended.wait(timeout)
        return self.returncode

    def poll(self) -> int | None:
        """Returns the exit code of the process; None while it runs."""
        return self.returncode

    def kill(self) -> None:
        """Kills the process."""
        if self.pid and self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, 9)


class WorkerStarter:
    """A process that imports Beam at once, and forks a worker for each request.

    Args:
      count: Number of workers that will be requested.
      silent: Whether to hide what the workers print.

    Raises:
      OSError: The process cannot be started.
    """

    def __init__(self, count: int, silent: bool) -> None:
        self._left = count
        self._workers: list[ForkedWorker] = []
        self._lock = threading.Lock()
        requests, self._requests = os.pipe()
        reports, report_end = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, *_PROGRAM, "--fork", *map(str, (count, requests, report_end)), WORKER_MAIN],
                pass_fds=(requests, report_end),
                stderr=subprocess.DEVNULL if silent else None,
            )
        except BaseException:
            os.close(self._requests)
            os.close(reports)
            raise
        finally:
            os.close(requests)
            os.close(report_end)
        self._listener = threading.Thread(
            target=self._listen, args=(reports,), name="shardwright-worker-ends", daemon=True
        )
        self._listener.start()

    def start(self, environment: Mapping[str, str]) -> ForkedWorker | None:
        """Starts a worker.

        Args:
          environment: Its environment variables.

        Returns:
          The worker; None if no further one can be forked.
        """
        with self._lock:
            if not self._left or self._process.poll() is not None:
                return None
            worker = ForkedWorker()
            self._workers.append(worker)  # first, because its report may come at once
            self._left -= 1
            request = json.dumps(dict(environment)).encode("ascii") + b"\n"
            try:
                while request:
                    request = request[os.write(self._requests, request) :]
            except BrokenPipeError:
                return None
            return worker

    def _listen(self, reports: int) -> None:
        """Records what the process reports: `NUMBER pid PID` or `NUMBER code CODE` on each line."""
        with open(reports, encoding="ascii") as lines:
            for line in lines:
                number, kind, value = line.split()
                worker = self._workers[int(number)]
                if kind == "pid":
                    worker.pid = int(value)
                else:
                    worker.end(int(value))
        with self._lock:
            self._left = 0
            for worker in self._workers:
                if worker.returncode is None:
                    worker.end(_KILLED)

    def close(self) -> None:
        """Ends the process; it has no workers any more, or they end with their connections."""
        with self._lock:
            self._left = 0
            os.close(self._requests)
            if not self._workers:
                self._process.kill()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(_END_SECONDS)


#: The starters of the commands that run, the innermost last.
_starters: list[WorkerStarter] = []


@contextlib.contextmanager
def started_early(count: int, silent: bool) -> Iterator[None]:
    """Begins the imports of worker processes, from which `fork_worker` forks them while the block runs.

    Args:
      count: Number of workers; 0 if there are none, or if Beam has to start them itself.
      silent: Whether to hide what the workers print.
    """
    if not count or _starters or sys.platform != "linux" or not sys.executable:
        yield
        return
    try:
        starter = WorkerStarter(count, silent)
    except OSError:  # Beam will find the same and report it
        yield
        return
    _starters.append(starter)
    try:
        yield
    finally:
        _starters.remove(starter)
        starter.close()


def fork_worker(command: Any, environment: Mapping[str, str] | None) -> ForkedWorker | None:
    """Starts a worker process; returns None if the command is not Beam's for one, or it cannot be forked."""
    if not _starters or environment is None or WORKER_MAIN not in str(command):
        return None
    return _starters[-1].start(environment)
