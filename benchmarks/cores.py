"""Measures how far a conversion would use many cores, on a machine with few.

Each image of a few pixels sleeps (`sleeping.py`) for as long as a large one computes, so that a worker
process hardly needs a processor. The command takes the machine for one with as many processors
(`pretend_cores.py`) and starts as many worker processes. Their images/s grow with their number as long as the
real work around the sleeps, which this machine does, leaves it idle. The start of the command is not counted.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from unittest import mock

from command import Benchmark, Found, run_benchmark
from conversion import convert_once
from inputs import photos
from rounds import SPEED, Turn, summarize, take_turns

CORES = (1, 4, 16)
#: Size of the images that sleep, so small that nothing else takes long.
SMALL = "64x64"


def converted(folder: Path, cores: int, images: int) -> Turn:
    """Converts images that sleep, with a number of simulated cores."""
    words = ["--map=sleeping:sleep", "--shards=4", f"--limit={images}", "--pool=processes"]
    program = [sys.executable, str(Path(__file__).with_name("pretend_cores.py")), str(cores)]
    return {SPEED: convert_once(folder, words, program=program).turn()["converting"]}


def measure(options: argparse.Namespace) -> Found:
    """Measures the images per second of each number of cores."""
    given = photos(options, options.each * max(CORES), f"--pieces={SMALL}", "--copies=10")
    ways = {
        f"{count} cores": partial(converted, given.folder, count, count * options.each) for count in CORES
    }
    with mock.patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parent)):
        found = take_turns(ways, options.rounds)
    return Found(given.text, summarize(found, {SPEED: "images/s"}, dict.fromkeys(found, "1 cores")))


BENCHMARK = Benchmark(
    "cores",
    "Measures how far a conversion would use many cores, on a machine with few.",
    measure,
    quick={"count": 600, "each": 50, "rounds": 1},
    full={"count": 3000, "each": 500, "rounds": 3},
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
