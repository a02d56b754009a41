"""Measures what each distribution and extra installs: packages, megabytes and processor seconds of import.

    python benchmarks/installed.py > table.md

Needs uv on the PATH. Each installation gets a new virtual environment, with the versions in constraints.txt.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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
    command = ["uv", "pip", "install", "--quiet", "--python", python, "--constraints", "constraints.txt"]
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


def seconds_of_import(python: Path, code: str, rounds: int) -> float:
    """Returns the processor time of a process that imports something, less that of one that imports nothing.

    It is the median of some rounds. Unlike the duration, it hardly depends on what else the machine does.
    """

    def run(code: str) -> float:
        begin = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([python, "-c", code], check=True, stderr=subprocess.DEVNULL)
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        return end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime

    run(code)  # writes the bytecode
    return statistics.median(run(code) for _ in range(rounds)) - statistics.median(
        run("pass") for _ in range(rounds)
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="imports to measure (default: 5)")
    rounds = parser.parse_args().rounds
    print("| installed | packages | MB | import | seconds |")
    print("|---|---|---|---|---|")
    for title, (what, code) in INSTALLATIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            environment = Path(folder) / "venv"
            subprocess.run(["uv", "venv", "--quiet", "--python", sys.executable, environment], check=True)
            python = environment / "bin" / "python"
            install(python, what)
            packages, megabytes = size_of(environment)
            seconds = seconds_of_import(python, code, rounds)
        print(f"| {title} | {packages} | {megabytes:.0f} | `{code}` | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
