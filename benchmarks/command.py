"""The command line that all benchmarks share: sizes, input, what is printed and what is kept."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import inputs
from history import HISTORY, append_run, load_history
from machine import machine_facts, package_versions
from results import Result, Run
from tables import caption, one_table, pivot

ROOT = Path(__file__).parent.parent
#: Files that a benchmark itself writes. They do not make the measured code another one.
#: Options that do not change what is measured.
_NOT_INPUT = frozenset(("rounds", "count", "peer_python"))
_WRITTEN = (":!benchmarks/history.jsonl", ":!docs/BENCHMARKS.md")


@dataclass
class Found:
    """What a benchmark found.

    Attributes:
      input: What was processed, in words.
      results: The measured values.
      problems: Subjects that have no result, and why.
      versions: Versions in environments other than this one.
      failed: Whether a problem means that something is wrong, not only that something is not installed.
    """

    input: str
    results: list[Result]
    problems: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    failed: bool = False


@dataclass(frozen=True)
class Benchmark:
    """A benchmark.

    Attributes:
      name: Its name in the history.
      description: One sentence for `--help`.
      measure: Runs it with the parsed options.
      quick: Values of options for the small size.
      full: Values of options for the full size.
      needs_photos: Whether it processes images, and so has the options that name them.
    """

    name: str
    description: str
    measure: Callable[[argparse.Namespace], Found]
    quick: Mapping[str, Any]
    full: Mapping[str, Any]
    needs_photos: bool = True


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def commit_of_code() -> str:
    """Returns the abbreviated commit of the code, with "+" if files were changed since; empty without git."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *_WRITTEN)
    return commit + "+" if commit and changed else commit


def parse_options(benchmark: Benchmark, words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line of a benchmark.

    Args:
      benchmark: The benchmark; each value of its full size becomes an option.
      words: Arguments; None for those of this process.
    """
    parser = argparse.ArgumentParser(description=benchmark.description)
    parser.add_argument("--quick", action="store_true", help="the small size, which takes seconds to minutes")
    parser.add_argument(
        "--record",
        nargs="?",
        const=HISTORY,
        type=Path,
        help="add the run to benchmarks/history.jsonl, or to a file",
    )
    if benchmark.needs_photos:
        inputs.add_arguments(parser)
    for name, value in benchmark.full.items():
        kind = str if value is None else type(value)
        quick = benchmark.quick.get(name, value)
        parser.add_argument(f"--{name}", type=kind, help=f"(default: {value}; with --quick {quick})")
    options = parser.parse_args(words)
    chosen = {**benchmark.full, **(benchmark.quick if options.quick else {})}
    for name, value in chosen.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    # A run with other values is not comparable with others of its size, so the history tells them apart.
    options.own = {
        name: getattr(options, name)
        for name in chosen
        if name not in _NOT_INPUT and getattr(options, name) != chosen[name]
    }
    return options


def run_benchmark(benchmark: Benchmark, words: Sequence[str] | None = None) -> int:
    """Measures, prints a table, and adds the run to the history if that is asked for.

    Args:
      benchmark: The benchmark.
      words: Arguments; None for those of this process.

    Returns:
      The exit code: 1 if a subject gave a wrong result, else 0.
    """
    options = parse_options(benchmark, words)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # no user's program compiles its modules at each start
    began, when = time.monotonic(), datetime.now(UTC)
    machine, commit = machine_facts(), commit_of_code()
    found = benchmark.measure(options)
    own = "".join(f", {name} {value}" for name, value in sorted(options.own.items()))
    run = Run(
        benchmark=benchmark.name,
        size="quick" if options.quick else "full",
        input=found.input + own,
        results=tuple(found.results),
        problems=found.problems,
        when=when.strftime("%Y-%m-%dT%H:%M:%SZ"),
        minutes=round((time.monotonic() - began) / 60, 2),
        commit=commit,
        machine=machine,
        versions={**found.versions, **package_versions(sys.executable)},
    )
    if options.record is None:
        print(f"{pivot(run)}\n\n{caption(run)}")
    else:
        append_run(run, options.record)
        print(one_table([run], load_history()))
    return int(found.failed)
