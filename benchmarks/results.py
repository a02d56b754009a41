"""The one form of all results: what the programs print, what the history keeps, what the page shows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

#: Units of which less is better, and of which more is better. Other values have no better direction.
LESS_IS_BETTER = frozenset(("s", "ms", "us", "MB", "bytes"))
MORE_IS_BETTER = frozenset(("images/s", "records/s", "rows/s", "refs/s", "GB/s"))
_DIGITS = 4


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


@dataclass(frozen=True)
class Result:
    """One measured value.

    Attributes:
      subject: What was measured, for example a program or a size; a row of a table.
      measure: Name of the value, for example "time"; a column of a table.
      unit: Unit of the value.
      value: Median of all runs.
      least: Smallest value of all runs.
      most: Largest value of all runs.
      runs: Number of runs.
      ratio: Median of the ratios to the same measure of another subject, round by round; None without one.
      ratio_to: That other subject; empty without a ratio.
    """

    subject: str
    measure: str
    unit: str
    value: float
    least: float
    most: float
    runs: int = 1
    ratio: float | None = None
    ratio_to: str = ""


def result_of(
    subject: str,
    measure: str,
    unit: str,
    values: Sequence[float],
    ratio: float | None = None,
    ratio_to: str = "",
) -> Result:
    """Returns the result of the values of some runs, rounded to four digits.

    Args:
      subject: What was measured.
      measure: Name of the value.
      unit: Unit of the values.
      values: One value for each run.
      ratio: Ratio to the same measure of another subject.
      ratio_to: That other subject.
    """
    middle, least, most = (_rounded(value) for value in (statistics.median(values), min(values), max(values)))
    if ratio is None:
        return Result(subject, measure, unit, middle, least, most, len(values))
    return Result(subject, measure, unit, middle, least, most, len(values), _rounded(ratio), ratio_to)


@dataclass(frozen=True)
class Run:
    """One run of a benchmark; a line of the history.

    Attributes:
      benchmark: Name of the benchmark.
      size: "quick" or "full".
      input: What was processed, in words.
      results: The measured values.
      problems: Subjects that have no result, and why.
      when: Time of the start, in UTC, such as "2026-11-23T08:00Z".
      minutes: Duration of the whole run.
      commit: Abbreviated commit of the code, followed by "+" if files had been changed.
      machine: Facts about the machine, by name.
      versions: Versions of the packages that matter, by name.
    """

    benchmark: str
    size: str
    input: str
    results: tuple[Result, ...]
    problems: dict[str, str] = field(default_factory=dict)
    when: str = ""
    minutes: float = 0.0
    commit: str = ""
    machine: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Returns the run as JSON values, without what is empty or missing."""
        required = ("benchmark", "size", "input", "results")
        line = {name: value for name, value in asdict(self).items() if value or name in required}
        for result in line["results"]:
            if result["ratio"] is None:
                del result["ratio"], result["ratio_to"]
        return line

    @classmethod
    def from_dict(cls, line: dict[str, Any]) -> Run:
        """Returns the run that `as_dict` described."""
        return cls(**{**line, "results": tuple(Result(**item) for item in line["results"])})

    @property
    def kind(self) -> tuple[str, ...]:
        """What two runs must share to be compared: benchmark, size, input, and the kind of machine."""
        machine = tuple(self.machine.get(name, "") for name in ("CPU", "cores", "Python"))
        return (self.benchmark, self.size, self.input, *machine)
