"""The memory that a block of a test or a command takes."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from helpers.hostile import COMMAND

#: Runs a command; prints its output, and at last its exit code and its peak memory in kB.
_MEASURE = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:])
_, status, used = os.wait4(process.pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_maxrss)
"""


class MeasuredCommand(NamedTuple):
    """The exit code of a command, what it printed, and its peak memory in megabytes."""

    code: int
    output: str
    megabytes: float


def measured_command(*argv: object) -> MeasuredCommand:
    """Runs `shardwright` with some arguments.

    A small process starts it, because a child's peak begins with the memory of its parent.
    """
    words = [sys.executable, "-c", _MEASURE, str(COMMAND), *map(str, argv)]
    process = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True, timeout=1800
    )
    output, _, last = process.stdout.rstrip("\n").rpartition("\n")
    code, peak = map(int, last.split())
    megabytes = peak / (1e6 if sys.platform == "darwin" else 1e3)
    print(f"\n{megabytes:6.0f} MB  {' '.join(map(str, argv))}")
    return MeasuredCommand(code, output, megabytes)


@contextmanager
def traced_memory() -> Iterator[Callable[[], int]]:
    """Traces the memory that Python allocates; gives a function that returns the peak, in bytes."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
