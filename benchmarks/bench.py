"""Runs all benchmarks, prints their results in one table, and adds them to benchmarks/history.jsonl.

    python benchmarks/bench.py --quick
    python benchmarks/bench.py --source FOLDER_OF_PHOTOGRAPHS --only competitors,startup

Each benchmark is a program of its own that can also be run alone; see benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from history import HISTORY, append_run, load_history
from inputs import WORK
from results import Run
from tables import one_table

HERE = Path(__file__).parent
#: The programs, in the order in which they run, with the minutes that the quick and the full size may take.
#: The history knows better after the first run.
SUITE: dict[str, tuple[float, float]] = {
    "startup": (1, 3),
    "competitors": (2, 30),
    "commits": (2, 25),
    "codec_limit": (0.5, 3),
    "validation": (1, 5),
    "rebuild": (2, 15),
    "archives": (1.5, 10),
    "manifest": (1, 5),
    "storage": (3, 20),
    "loader": (1, 5),
    "random_access": (1, 5),
    "large_photos": (1, 5),
    "cores": (1, 5),
    "duplicates": (1, 10),
    "damage": (1, 10),
    "references": (1, 5),
    "installed": (1, 10),
    "scale": (3, 180),
}
#: Benchmarks that need no images.
WITHOUT_PHOTOS = frozenset(("startup", "manifest", "references", "installed"))
#: Peers that need special versions of packages, so each gets its own environment.
PEERS = ("img2dataset", "litdata")


def expected_minutes(names: Sequence[str], size: str, runs: Sequence[Run]) -> float:
    """Returns how long some benchmarks are likely to take: as long as their last runs, or a guess.

    Args:
      names: Names of the benchmarks.
      size: "quick" or "full".
      runs: All runs, oldest first.
    """
    last = {run.benchmark: run.minutes for run in runs if run.size == size and run.minutes}
    return sum(last.get(name, SUITE[name][size == "full"]) for name in names)


def install_peers() -> list[str]:
    """Makes the environments of the peers; returns their interpreters."""
    interpreters = []
    for peer in PEERS:
        python = WORK / peer / "bin" / "python"
        done = WORK / peer / ".installed"
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", str(WORK / peer)], check=True)
            wanted = HERE / f"requirements-{peer}.txt"
            subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", str(wanted)], check=True)
            done.touch()
        interpreters.append(str(python))
    return interpreters


def arguments_of(name: str, options: argparse.Namespace, peers: Sequence[str]) -> list[str]:
    """Returns the arguments of one benchmark.

    Args:
      name: Name of the benchmark.
      options: Parsed options of this program.
      peers: Interpreters of the peers.
    """
    words = ["--quick"] if options.quick else []
    if options.source and name not in WITHOUT_PHOTOS:
        words.append(f"--source={options.source}")
    if peers and name == "competitors":
        words.append(f"--peer_python={','.join(peers)}")
    return words


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the small sizes, which take some minutes")
    parser.add_argument("--only", default="", help="names of benchmarks with commas")
    parser.add_argument(
        "--source", type=Path, help="photographs to cut the images from (default: generate them)"
    )
    parser.add_argument(
        "--peers", action="store_true", help="install the peers that need their own environments"
    )
    parser.add_argument("--history", type=Path, default=HISTORY, help="file to add the runs to")
    options = parser.parse_args()
    names = [name for name in options.only.split(",") if name] or list(SUITE)
    if unknown := sorted(set(names) - set(SUITE)):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(SUITE)}")
    size = "quick" if options.quick else "full"
    before = load_history(options.history)
    minutes = expected_minutes(names, size, before)
    print(f"{len(names)} benchmarks, about {minutes:.0f} minutes in all", file=sys.stderr, flush=True)
    peers = install_peers() if options.peers else []
    failed = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            minutes = expected_minutes([name], size, before)
            print(f"{name}: about {minutes:.1f} minutes", file=sys.stderr, flush=True)
            new = Path(scratch, f"{name}.jsonl")
            program = [sys.executable, str(HERE / f"{name}.py"), f"--record={new}"]
            # The table of each alone goes to standard error, so that standard output holds the one table.
            words = [*program, *arguments_of(name, options, peers)]
            if subprocess.run(words, stdout=sys.stderr).returncode:
                failed.append(name)
            for run in load_history(new):
                append_run(run, options.history)
    history = load_history(options.history)
    found = [run for run in history if run not in before]
    print(one_table(found, history))
    if failed:
        print(f"Failed: {', '.join(failed)}. The reasons are above.", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
