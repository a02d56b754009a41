"""Writes results as Markdown tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from history import changes
from results import Result, Run


def as_table(head: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """Writes a Markdown table.

    Args:
      head: Titles of the columns.
      rows: Cells of each row.
      texts: Number of columns with text, which come first; the others hold numbers.
    """
    rule = ["---"] * texts + ["---:"] * (len(head) - texts)
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(rule) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def number(value: float) -> str:
    """Writes a value with about three digits.

    >>> [number(value) for value in (0.0123, 3.4567, 45.678, 2405.6, 0)]
    ['0.012', '3.46', '45.7', '2,406', '0']
    """
    size = abs(value)
    digits = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2 if size >= 0.1 else 3
    return f"{value:,.{digits}f}"


def with_range(result: Result) -> str:
    """Writes the median of a result and, if there were several runs, its range: `3.41 (3.33-3.52)`."""
    if result.runs < 2 or result.least == result.most:
        return number(result.value)
    return f"{number(result.value)} ({number(result.least)}-{number(result.most)})"


def pivot(run: Run, measures: Collection[str] = (), subjects: Collection[str] = ()) -> str:
    """Writes a run as a table with a row for each subject and a column for each measure.

    Args:
      run: Run to write.
      measures: Measures to show; empty for all.
      subjects: Subjects to show; empty for all.
    """
    shown = [
        result
        for result in run.results
        if (not measures or result.measure in measures) and (not subjects or result.subject in subjects)
    ]
    columns = list(dict.fromkeys((result.measure, result.unit) for result in shown))
    bases = {
        measure: {base_of(result) for result in shown if result.measure == measure and result.ratio_to}
        for measure, _ in columns
    }
    by_name = {(result.subject, result.measure): result for result in shown}
    head = [""]
    for measure, unit in columns:
        head.append(f"{measure}, {unit}" if unit and unit != measure else measure)
        if bases[measure]:
            head.append(f"/ {next(iter(bases[measure]))}" if len(bases[measure]) == 1 else "ratio")
    rows = []
    for subject in dict.fromkeys(result.subject for result in shown):
        row = [subject]
        for measure, _ in columns:
            result = by_name.get((subject, measure))
            row.append(with_range(result) if result else "")
            if bases[measure]:
                row.append(_ratio(result, several=len(bases[measure]) > 1))
        rows.append(row)
    rows += [[name, why, *[""] * (len(head) - 2)] for name, why in run.problems.items()]
    return as_table(head, rows)


def _ratio(result: Result | None, several: bool) -> str:
    if result is None or result.ratio is None:
        return ""
    return f"{result.ratio:.2f}" + (f" / {base_of(result)}" if several else "")


def base_of(result: Result) -> str:
    """Returns the subject that a result is compared with, without the group that both share.

    For example, "shuffled: tf.data" is "tf.data" in the row "shuffled: TFDS".
    """
    group, _, name = result.ratio_to.rpartition(": ")
    return name if group == result.subject.rpartition(": ")[0] else result.ratio_to


def caption(run: Run, machine: str = "") -> str:
    """Writes what a table shows in one line: input, runs, date, commit, machine and load.

    Args:
      run: Run to describe.
      machine: Name of the machine on the page; empty to write its processor.
    """
    runs = {result.runs for result in run.results}
    many = f"medians of {max(runs)} runs with least and most" if runs and max(runs) > 1 else "one run"
    machine = machine or f"{run.machine.get('CPU', 'unknown')}, {run.machine.get('cores', '?')} cores"
    facts = [run.input, many, run.when[:10], f"commit {run.commit}" if run.commit else "", machine]
    facts.append(f"load {run.machine['load']}" if "load" in run.machine else "")
    facts.append("small size" if run.size == "quick" else "")
    return "; ".join(fact for fact in facts if fact)


def one_table(found: Sequence[Run], history: Sequence[Run]) -> str:
    """Writes all results of some runs in one table, each beside the run before.

    Args:
      found: Runs to write.
      history: All runs, oldest first.
    """
    rows = []
    for run in found:
        compared = changes(run, history)
        for result in run.results:
            change = compared.get((result.subject, result.measure))
            rows.append(
                [
                    run.benchmark,
                    result.subject,
                    f"{result.measure}, {result.unit}" if result.unit else result.measure,
                    with_range(result),
                    _ratio(result, several=True),
                    "" if change is None else f"{change.ratio:.2f} {change.verdict}".rstrip(),
                ]
            )
        rows += [[run.benchmark, name, why, "", "", ""] for name, why in run.problems.items()]
    head = ["benchmark", "what", "measure", "median (least-most)", "ratio", "/ last run"]
    return as_table(head, rows, texts=3)
