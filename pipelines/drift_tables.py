"""Prints the differences between two datasets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.text import Text

from shardwright.pipelines.record_values import as_text
from shardwright.pipelines.tables import ERROR, console, one_line, print_table, warn
from shardwright.schemas.codes import Severity
from shardwright.schemas.drift import Drift
from shardwright.schemas.drift_tables import drift_tables
from shardwright.schemas.units import counted, is_or_are
from shardwright.schemas.violation import Violation


def print_drift(drift: Drift, refusals: Sequence[Violation] | None = None) -> None:
    """Prints the differences.

    Args:
      drift: The differences.
      refusals: Limits that are exceeded; None if there are no limits.
    """
    out = console()
    old, new = map(as_text, drift.datasets)
    if drift.identical:
        records = drift.all_records.new
        out.print(
            f"  {old} and {new} are identical: {counted(records, 'record')}, "
            f"fingerprint {drift.fingerprints.new}"
        )
    else:
        print_table(
            out,
            ("", "dataset", "fingerprint"),
            [("before", old, drift.fingerprints.old), ("now", new, drift.fingerprints.new)],
        )
        for table in drift_tables(drift.as_json()):
            rows = [[as_text(cell) if isinstance(cell, str) else cell for cell in row] for row in table.rows]
            print_table(out, table.heads, rows, title=f"  {table.title}")
            if table.more:
                out.print(f"  and {counted(table.more, 'more row', 'more rows')}")
    if refusals is not None:
        _print_refusals(out, refusals)


def _print_refusals(out: Any, refusals: Iterable[Violation]) -> None:
    refusals = list(refusals)
    for refusal in refusals:
        if refusal.severity is Severity.ERROR:
            line = Text("  ").append("refused", ERROR).append(f": {one_line(refusal.message)}")
            out.print(line, soft_wrap=True)
        else:
            warn(out, refusal.message)
    errors = sum(refusal.severity is Severity.ERROR for refusal in refusals)
    exceeded = counted(errors, "limit") if errors else "no limit"
    out.print(f"  {exceeded} {is_or_are(errors or 1)} exceeded")
