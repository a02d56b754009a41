"""Writes temporary files of the tests to memory, because waiting for a disk takes most of the time."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_PLACE = Path("/dev/shm")
#: Maximum number of bytes that a run of the suite needs, with a large reserve.
_NEEDED = 6 * 10**9


def use_memory_disk() -> None:
    """Directs temporary files to memory, if the machine has enough and `TMPDIR` is not set."""
    if "TMPDIR" in os.environ or not os.access(_PLACE, os.W_OK | os.X_OK):
        return
    if min(shutil.disk_usage(_PLACE).free, _available_memory()) < _NEEDED:
        return
    os.environ["TMPDIR"] = str(_PLACE)
    tempfile.tempdir = None


def _available_memory() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return 0
