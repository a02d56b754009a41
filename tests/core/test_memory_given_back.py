"""The memory of large pictures is returned to the system when they are freed."""

from __future__ import annotations

import sys

import pytest

CODE = """
import sys
from PIL import Image
from shardwright.core.concurrency.pool import working_budget

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def churn():
    keep = []
    for number in range(12):
        picture = Image.new("RGB", (3000, 3000), "teal")  # blocks of 16 MB
        keep.append(bytearray(200_000))  # what stays between them
        del picture
    return keep

working_budget()
first = Image.new("RGB", (1000, 1000), "teal")
before = resident()
kept = churn()
print(resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_freed_pictures_return_their_memory() -> None:
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(done.stdout) < 12_000_000
