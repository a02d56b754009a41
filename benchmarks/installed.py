"""Measures what each distribution and extra installs: packages, megabytes and processor seconds of import.

Needs uv on the PATH and a network. Each installation gets a new virtual environment, with the versions in
constraints.txt. The time of an import is that of a process that imports something, less that of one that
imports nothing.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from command import ROOT, Benchmark, Found, run_benchmark
from results import Result, result_of
from rounds import Turn, take_turns

#: Title -> (what to install, the import to measure). `convert` imports Beam only when it is called.
INSTALLATIONS = {
    "`shardwright-reader`": ("reader", "from shardwright import Records"),
    "`shardwright-reader[gcs]`": ("reader[gcs]", "from shardwright import Records"),
    "`shardwright-reader[tensorflow]`": ("reader[tensorflow]", "from shardwright import load"),
    "`shardwright`": (".", "import apache_beam; from shardwright import convert"),
    "`shardwright[dataflow]`": (".[dataflow]", "import apache_beam; from shardwright import convert"),
    "`shardwright[tensorflow]`": (".[tensorflow]", "from shardwright import load"),
}
_BYTECODE = "__pycache__"


def install(python: Path, what: str) -> None:
    """Installs a folder of this repository with its extras."""
    command = ["uv", "pip", "install", "--quiet", "--python", str(python), "--constraints", "constraints.txt"]
    subprocess.run([*command, f"./{what}"], check=True, cwd=ROOT)


def size_of(environment: Path) -> tuple[int, float]:
    """Returns the number of packages in an environment, and their megabytes without bytecode."""
    (packages,) = environment.glob("lib/python*/site-packages")
    files = [
        path
        for path in packages.rglob("*")
        if path.is_file() and not path.is_symlink() and _BYTECODE not in path.parts
    ]
    return len(list(packages.glob("*.dist-info"))), sum(path.stat().st_size for path in files) / 1e6


def seconds_of_process(python: Path, code: str) -> Turn:
    """Returns the processor time of a process that runs some code."""
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([python, "-c", code], check=True, stderr=subprocess.DEVNULL)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"time": end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime}


def measure(options: argparse.Namespace) -> Found:
    """Installs each distribution and imports it."""
    results: list[Result] = []
    for title, (what, code) in list(INSTALLATIONS.items())[: options.installations]:
        with tempfile.TemporaryDirectory() as folder:
            environment = Path(folder) / "venv"
            subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, environment], check=True)
            python = environment / "bin" / "python"
            install(python, what)
            packages, megabytes = size_of(environment)
            ways = {
                code: partial(seconds_of_process, python, code),
                "pass": partial(seconds_of_process, python, "pass"),
            }
            found = take_turns(ways, options.rounds, warm_up=True)  # the first round writes the bytecode
        seconds = [mine["time"] - bare["time"] for mine, bare in zip(found[code], found["pass"], strict=True)]
        results += [
            result_of(title, "packages", "", [packages]),
            result_of(title, "size", "MB", [megabytes]),
            result_of(title, "import, processor time", "s", seconds),
        ]
    return Found("new environments with the versions of constraints.txt", results)


BENCHMARK = Benchmark(
    "installed",
    "Measures what each distribution and extra installs, and the processor time of its import.",
    measure,
    quick={"installations": 1, "rounds": 1},
    full={"installations": len(INSTALLATIONS), "rounds": 5},
    needs_photos=False,
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
