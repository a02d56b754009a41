"""Keeps the runs of all benchmarks, and compares a run with the last one on the same kind of machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from results import LESS_IS_BETTER, MORE_IS_BETTER, Result, Run

HISTORY = Path(__file__).with_name("history.jsonl")
#: Differences up to this share are never marked: a machine alone makes them.
NOISE = 0.05
#: With fewer runs the spread says little, so a difference must be larger.
FEW_RUNS = 3
NOISE_OF_FEW_RUNS = 0.2


def load_history(path: Path = HISTORY) -> list[Run]:
    """Reads all runs, oldest first.

    Args:
      path: File with one run on each line.

    Raises:
      ValueError: If a line is not a run; the message names the line.
    """
    if not path.exists():
        return []
    runs = []
    with path.open() as file:
        for number, line in enumerate(file, 1):
            try:
                runs.append(Run.from_dict(json.loads(line)))
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(
                    f"{path}, line {number}: not a run ({error}); restore it from git."
                ) from error
    return sorted(runs, key=lambda run: run.when)


def append_run(run: Run, path: Path = HISTORY) -> None:
    """Adds a run to the end of the file."""
    with path.open("a") as file:
        file.write(json.dumps(run.as_dict(), ensure_ascii=False) + "\n")


def run_before(run: Run, runs: Iterable[Run]) -> Run | None:
    """Returns the last earlier run of the same benchmark, size and input on the same kind of machine.

    Args:
      run: Run to compare.
      runs: All runs, oldest first.
    """
    earlier = [other for other in runs if other.kind == run.kind and other.when < run.when]
    return earlier[-1] if earlier else None


@dataclass(frozen=True)
class Change:
    """A result beside the same result of an earlier run.

    Attributes:
      ratio: Value divided by the earlier value.
      verdict: "slower", "larger", "faster" or "smaller" if the difference is larger than the spread; else
        empty.
    """

    ratio: float
    verdict: str


_VERDICTS = {
    ("less", True): ("larger", "smaller"),
    ("less", False): ("slower", "faster"),
    ("more", False): ("faster", "slower"),
}


def compare(result: Result, earlier: Result) -> Change | None:
    """Compares a result with the same result of an earlier run.

    A difference counts if the ranges of both do not overlap and it is larger than what a machine alone makes.

    Args:
      result: The result.
      earlier: Result of the earlier run.

    Returns:
      The change, or None if there is nothing to divide by.
    """
    if not earlier.value:
        return None
    ratio = result.value / earlier.value
    noise = NOISE if min(result.runs, earlier.runs) >= FEW_RUNS else NOISE_OF_FEW_RUNS
    apart = result.least > earlier.most or result.most < earlier.least
    better = "less" if result.unit in LESS_IS_BETTER else "more" if result.unit in MORE_IS_BETTER else ""
    if not better or not apart or abs(ratio - 1) <= noise:
        return Change(ratio, "")
    grown, shrunk = _VERDICTS[better, result.unit in ("MB", "bytes")]
    return Change(ratio, grown if ratio > 1 else shrunk)


def changes(run: Run, runs: Sequence[Run]) -> dict[tuple[str, str], Change]:
    """Compares all results of a run with those of the run before.

    Args:
      run: Run to compare.
      runs: All runs, oldest first.

    Returns:
      Changes by subject and measure, of the results that both runs have.
    """
    before = run_before(run, runs)
    known = {(result.subject, result.measure): result for result in before.results} if before else {}
    found = {}
    for result in run.results:
        name = (result.subject, result.measure)
        if name in known and (change := compare(result, known[name])):
            found[name] = change
    return found
