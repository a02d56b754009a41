"""Writes docs/BENCHMARKS.md from page.md, which has the text, and history.jsonl, which has the figures.

A line `{{ table NAME }}` of the text becomes the table of the last run of that benchmark. The words
`measures="A; B"` and `subjects="A; B"` choose its columns and rows. `{{ changes }}` becomes a table of what
became slower or faster, and `{{ machines }}` a list of the machines and versions.

    python benchmarks/page.py
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from history import HISTORY, changes, load_history, run_before
from results import Run
from tables import as_table, caption, number, pivot

HERE = Path(__file__).parent
TEXT = HERE / "page.md"
PAGE = HERE.parent / "docs" / "BENCHMARKS.md"
_NOTICE = (
    "<!-- `make bench-docs` writes this file from benchmarks/page.md and benchmarks/history.jsonl. -->\n\n"
)
_PLACE = re.compile(
    r"^\{\{ (table (?P<table>[\w-]+)(?P<chosen>(?: \w+=\"[^\"]*\")*)|changes|machines) \}\}$", re.M
)
_CHOSEN = re.compile(r" (\w+)=\"([^\"]*)\"")


def run_to_show(benchmark: str, runs: Sequence[Run]) -> Run | None:
    """Returns the last full run of a benchmark, or its last quick run if there is no full one.

    Args:
      benchmark: Name of the benchmark.
      runs: All runs, oldest first.
    """
    own = [run for run in runs if run.benchmark == benchmark]
    full = [run for run in own if run.size == "full"]
    return next(reversed(full or own), None)


class Page:
    """The generated page.

    Args:
      runs: All runs, oldest first.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs
        self._machines: dict[tuple[str, ...], str] = {}

    def fill(self, text: str) -> str:
        """Returns the text with its places filled.

        Raises:
          ValueError: If a place cannot be filled, with the reason.
        """
        filled = _PLACE.sub(self._place, text)
        if "{{" in filled:
            line = next(line for line in filled.splitlines() if "{{" in line)
            raise ValueError(f"page.md has a place that is not known: {line}")
        return _NOTICE + filled

    def _place(self, place: re.Match[str]) -> str:
        if place[1] == "changes":
            return self._changes()
        if place[1] == "machines":
            return self._list_machines()
        run = run_to_show(place["table"], self._runs)
        if run is None:
            raise ValueError(f"history.jsonl has no run of {place['table']}: run it with --record.")
        chosen = {name: value.split("; ") for name, value in _CHOSEN.findall(place["chosen"])}
        if unknown := chosen.keys() - {"measures", "subjects"}:
            raise ValueError(f"{place[0]}: unknown words {', '.join(sorted(unknown))}")
        table = pivot(run, chosen.get("measures", ()), chosen.get("subjects", ()))
        if "\n|---" not in table or table.count("\n") < 2:
            raise ValueError(f"{place[0]}: the run has no such results")
        return f"{table}\n\n*{caption(run, self._machine(run))}*"

    def _machine(self, run: Run) -> str:
        """Returns the name of a run's machine on this page, such as "machine A"."""
        facts = tuple(run.machine.get(name, "") for name in ("CPU", "cores", "memory", "system", "Python"))
        name = self._machines.setdefault(facts, chr(ord("A") + len(self._machines)))
        return f"machine {name}"

    def _list_machines(self) -> str:
        lines = []
        for (cpu, cores, memory, system, python), name in self._machines.items():
            facts = [cpu, f"{cores} cores", memory, system, f"Python {python}" if python else ""]
            lines.append(f"- machine {name}: {', '.join(fact for fact in facts if fact)}")
        versions: dict[str, str] = {}
        for run in self._runs:
            versions |= run.versions
        listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        return "\n".join([*lines, f"- versions in the last runs: {listed}"])

    def _changes(self) -> str:
        rows = []
        last = {run.kind: run for run in self._runs}
        for run in last.values():
            before = run_before(run, self._runs)
            for (subject, measure), change in changes(run, self._runs).items():
                if before and change.verdict:
                    commits = f"{before.commit or before.when[:10]} → {run.commit or run.when[:10]}"
                    rows.append(
                        [run.benchmark, subject, measure, number(change.ratio), change.verdict, commits]
                    )
        if not rows:
            return "No result of the last runs differs from the run before by more than the spread."
        head = ["benchmark", "what", "measure", "now / before", "", "commits"]
        return as_table(head, rows, texts=3)


def generate(text: Path = TEXT, history: Path = HISTORY) -> str:
    """Returns the page.

    Args:
      text: File with the text and the places for tables.
      history: File with the runs.

    Raises:
      ValueError: If a place of the text cannot be filled.
    """
    return Page(load_history(history)).fill(text.read_text())


def main() -> int:
    """Runs the command line."""
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    PAGE.write_text(generate())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
