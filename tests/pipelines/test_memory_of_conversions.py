"""Files that ask for gigabytes are converted or refused in less than 700 MB."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import oversized
import pytest
from hostile import COMMAND

pytestmark = pytest.mark.slow

MOST_MEGABYTES = 700
#: Runs a command; prints its exit code and its peak of memory in kB.
_MEASURE = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_maxrss)
"""


def _peak_of(tmp_path: Path, data: bytes, copies: int, *more: str) -> float:
    """Converts copies of a file; returns the command's peak of memory in MB."""
    for number in range(copies):
        folder = tmp_path / "in" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.jpg").write_bytes(data)
    # By a small process: a child's peak begins with the memory of the process that it was forked from.
    argv = [
        sys.executable,
        "-c",
        _MEASURE,
        str(COMMAND),
        "convert",
        str(tmp_path / "in"),
        str(tmp_path / "out"),
        *more,
    ]
    measured = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=600)
    code, kilobytes = map(int, measured.stdout.split()[-2:])
    assert code in (0, 1)
    return kilobytes / 1e3


@pytest.mark.parametrize(
    "make, copies",
    [
        (lambda: oversized.progressive_jpeg(9200), 20),
        (lambda: oversized.progressive_jpeg(8000), 4),
        (lambda: oversized.tiff_of_tiles(9400, 9400, (9408, 9408)), 24),
        (lambda: oversized.tiff_of_tiles(6500, 6500, (512, 512)), 6),
        (lambda: oversized.webp_canvas(9400, 9400), 12),
        (lambda: oversized.webp_canvas(4500, 4500), 4),
    ],
    ids=["coefficients", "fewer coefficients", "tile", "tiles", "canvas", "smaller canvas"],
)
def test_memory_stays_below_its_limit(tmp_path: Path, make: Callable[[], bytes], copies: int) -> None:
    assert _peak_of(tmp_path, make(), copies, "--resize=224") < MOST_MEGABYTES
