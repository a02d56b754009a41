"""Starts worker processes on this machine: Beam's own program, with less of Beam imported.

`python -m shardwright.pipelines.beam_worker MODULE` is `python -m MODULE`. With `--fork COUNT REQUESTS
REPORTS` before the module it forks: `worker_processes.py` explains why.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import sys
from importlib import import_module
from pathlib import Path
from types import FrameType

from shardwright.pipelines import worker_reaper
from shardwright.pipelines.beam_imports import import_beam, process_is_ours

#: Nearly all objects are long-lived, as in the command itself.
_GC_THRESHOLDS = (20_000, 50, 50)
#: What the steps of most jobs import. A worker imports the rest when it is used.
_MODULES = (
    "grpc.experimental",
    "PIL.JpegImagePlugin",
    "PIL.PngImagePlugin",
    "shardwright.pipelines.prepare",
    "shardwright.transforms.begin_conversion",
    "shardwright.transforms.commit",
    "shardwright.transforms.plan.transforms",
    "shardwright.transforms.shards.write",
    "shardwright.transforms.sources.transforms",
    "shardwright.transforms.validation.compare_ledgers",
    "shardwright.transforms.validation.validate",
)
_REQUEST_BYTES = 1 << 16


class Forking:
    """Forks a worker for each request.

    Args:
      count: Number of workers.
      requests: Descriptor of a pipe with a line of JSON for each worker: its environment variables.
      reports: Descriptor of the pipe for reports.
    """

    def __init__(self, count: int, requests: int, reports: int) -> None:
        self._count = count
        self._requests = requests
        self._reports = reports
        self._numbers: dict[int, int] = {}
        self._ended = 0
        self._woken, self._wakes = os.pipe()

    def run(self) -> None:
        """Returns in each forked worker; the process itself ends here, or becomes the reaper."""
        for end in (self._woken, self._wakes):
            os.set_blocking(end, False)
        before = [
            (number, signal.signal(number, _ignore)) for number in (signal.SIGCHLD, *worker_reaper.IGNORED)
        ]
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        read = b""
        while len(self._numbers) < self._count:
            ready, _, _ = select.select([self._requests, self._woken], [], [])
            if self._woken in ready:
                numbers = os.read(self._woken, _REQUEST_BYTES)
                self._reap()
                if self._ended == len(self._numbers) and any(
                    number in numbers for number in worker_reaper.IGNORED
                ):
                    sys.exit()  # the command was interrupted
            if self._requests not in ready:
                continue
            more = os.read(self._requests, _REQUEST_BYTES)
            if not more:  # the command has ended, or needs no more workers
                break
            *lines, read = (read + more).split(b"\n")
            for line in lines:
                if self._fork():
                    signal.set_wakeup_fd(-1)
                    for number, handler in before:
                        signal.signal(number, handler)
                    for descriptor in (self._requests, self._reports, self._woken, self._wakes):
                        os.close(descriptor)
                    os.environ.clear()
                    os.environ.update(json.loads(line))
                    return
        self._become_reaper()

    def _fork(self) -> bool:
        """Forks a worker; returns whether this is the worker."""
        pid = os.fork()
        if pid:
            number = self._numbers[pid] = len(self._numbers)
            worker_reaper.report(self._reports, number, "pid", pid)
        return not pid

    def _reap(self) -> None:
        while self._ended < len(self._numbers):
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            self._ended += 1
            worker_reaper.report_end(self._reports, self._numbers, pid, status)

    def _become_reaper(self) -> None:
        for number in worker_reaper.IGNORED:
            signal.signal(number, signal.SIG_IGN)
        os.set_inheritable(self._reports, True)
        program = str(Path(worker_reaper.__file__))
        numbers = (f"{number}={pid}" for pid, number in self._numbers.items())
        os.execv(sys.executable, [sys.executable, "-I", "-S", program, str(self._reports), *numbers])


def _ignore(number: int, frame: FrameType | None) -> None:
    """Does nothing: the number of the signal is in the pipe."""


def _import_all() -> None:
    gc.set_threshold(*_GC_THRESHOLDS)
    process_is_ours()
    import_beam()


def _main() -> None:
    if sys.argv[1] == "--fork":
        count, requests, reports = map(int, sys.argv[2:5])
        _import_all()
        for name in _MODULES:
            import_module(name)
        gc.freeze()
        Forking(count, requests, reports).run()
        del sys.argv[1:5]
    else:
        _import_all()
    runpy.run_module(sys.argv[1], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
