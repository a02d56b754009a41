"""Compares this commit with an earlier one, each installed as users install it: without extras and tools.

What is installed decides much of a short run: Beam imports every cloud's client that it finds.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
from functools import partial
from pathlib import Path

from command import ROOT, Benchmark, Found, run_benchmark
from conversion import TIMEOUT
from inputs import WORK, photos
from measure import run_measured
from rounds import Turn, summarize, take_turns

UNITS = {"time": "s", "processor time": "s", "peak": "MB"}


def install(commit: str) -> Path:
    """Installs a commit in an environment of its own, unless that was done; returns the program."""
    name = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short=12", commit], check=True, capture_output=True, text=True
    ).stdout.strip()
    environment = WORK / "commits" / name
    program = environment / "bin" / "shardwright"
    if not program.exists():
        archive = subprocess.run(["git", "-C", ROOT, "archive", name], check=True, capture_output=True).stdout
        with tempfile.TemporaryDirectory() as source:
            with tarfile.open(fileobj=io.BytesIO(archive)) as files:
                files.extractall(source, filter="data")
            subprocess.run([sys.executable, "-m", "venv", environment], check=True)
            pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
            subprocess.run([*pip, "-c", "constraints.txt", "."], check=True, cwd=source)
    return program


def run(program: Path, words: list[str], output: Path | None = None) -> Turn:
    """Runs a command as a whole process; an output is a new folder in each turn unless it is given."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, log = Path(scratch, "out"), Path(scratch, "log")
        places = [word.format(output=output or folder, scratch=scratch) for word in words]
        measured = run_measured([str(program), *places], log, TIMEOUT)
        if measured.exit_code:
            raise SystemExit(log.read_text(errors="replace")[-3000:])
    return {"time": measured.seconds, "processor time": measured.processor_seconds, "peak": measured.tree_mb}


def measure(options: argparse.Namespace) -> Found:
    """Runs both commits in turn: for each size, conversions and `--fast` of what they wrote."""
    programs = {"now": install("HEAD"), options.before: install(options.before)}
    counts = [int(count) for count in options.counts.split(",")]
    results, texts = [], []
    for count in counts:
        images = photos(options, count)
        texts.append(images.text)
        convert = ["convert", f"--input={images.folder}", "--output={output}", "--resize=224"]
        with tempfile.TemporaryDirectory(dir=WORK) as datasets:
            converting, checking = {}, {}
            for name, program in programs.items():
                converting[f"convert {count:,}: {name}"] = partial(run, program, convert)
                dataset = Path(datasets, name)
                run(program, convert, dataset)
                reports = ["--report={scratch}/findings.json", "--html={scratch}/report.html"]
                checking[f"validate --fast {count:,}: {name}"] = partial(
                    run, program, ["validate", f"--dataset={dataset}", "--fast", *reports]
                )
            for ways in (converting, checking):
                rounds = take_turns(ways, options.rounds, warm_up=True)
                now, before = ways
                results += summarize(rounds, UNITS, {now: before})
    return Found("; ".join(texts), results)


BENCHMARK = Benchmark(
    "commits",
    "Compares this commit with an earlier one, each installed without extras.",
    measure,
    quick={"before": "HEAD~1", "counts": "300", "rounds": 1},
    full={"before": "8e59da0", "counts": "3000,20000,100000", "rounds": 3},
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
