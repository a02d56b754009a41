"""Measures how long small commands take, beside a bare `import apache_beam`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from command import ROOT, Benchmark, Found, run_benchmark
from conversion import PROGRAM, TIMEOUT
from measure import run_measured
from rounds import Turn, summarize, take_turns

DEMO = ROOT / "examples" / "photos"
IMPORT = "`import apache_beam`"
#: Replaced by a new folder in each round.
OUTPUT = "OUTPUT"


def run(words: Sequence[str]) -> Turn:
    """Runs a program with a new output folder and measures it."""
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "log")
        measured = run_measured(
            [word.replace(OUTPUT, str(Path(scratch, "out"))) for word in words], log, TIMEOUT
        )
        if measured.exit_code:
            raise SystemExit(log.read_text(errors="replace")[-3000:])
    return {"time": measured.seconds, "processor time": measured.processor_seconds, "peak": measured.tree_mb}


def measure(options: argparse.Namespace) -> Found:
    """Runs all programs in turn."""
    with tempfile.TemporaryDirectory() as scratch:
        one, dataset = Path(scratch, "one"), Path(scratch, "dataset")
        images = sorted(path for path in DEMO.rglob("*") if path.is_file())
        (one / "class").mkdir(parents=True)
        shutil.copy(images[0], one / "class")
        convert = [str(PROGRAM), "convert", "--resize=224", f"--output={OUTPUT}"]
        run([*convert[:-1], f"--input={DEMO}", f"--output={dataset}"])
        processes = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
        programs = {
            IMPORT: [sys.executable, "-c", "import apache_beam"],
            "`shardwright --help`": [str(PROGRAM), "--help"],
            "`convert` of one image": [*convert, f"--input={one}"],
            "`convert` of the demo": [*convert, f"--input={DEMO}"],
            "`convert` of the demo, 2 worker processes": [*convert, f"--input={DEMO}", *processes],
            "`validate` of the demo": [str(PROGRAM), "validate", f"--dataset={dataset}"],
        }
        ways = {name: partial(run, words) for name, words in programs.items()}
        found = take_turns(ways, options.rounds, warm_up=True)
    units = {"time": "s", "processor time": "s", "peak": "MB"}
    return Found(f"{len(images)} images of the demo", summarize(found, units, dict.fromkeys(found, IMPORT)))


BENCHMARK = Benchmark(
    "startup",
    "Measures how long small commands take, beside a bare `import apache_beam`.",
    measure,
    quick={"rounds": 1},
    full={"rounds": 5},
    needs_photos=False,
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
