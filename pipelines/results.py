"""Results of conversions and rebuilds."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shardwright.schemas.dataset import Dataset
from shardwright.schemas.image_ref import printable
from shardwright.schemas.split_order import by_split
from shardwright.schemas.units import counted
from shardwright.schemas.version import version_path

#: Columns of a ledger's table, after the split.
LEDGER_COLUMNS = ("listed", "written", "quarantined", "filtered", "deduplicated")
#: Counts in the outcome of a conversion that `--json` prints.
_COUNTS = ("kept", "animated", "damaged", "warned", "reused_shards")
#: Fields of the outcome of a rebuild that `--json` prints.
_OF_REBUILD = (
    "state", "previous", "fingerprint", "records", "work", "changes", "reasons", "scrub", "seconds",
    "warnings",
)  # fmt: skip


@dataclass(frozen=True, repr=False)
class ConvertResult:
    """The result of a conversion.

    Attributes:
      path: Dataset directory.
      dataset: Contents of its `dataset.json`.
      outcome: Contents of `_work/outcome.json`; `findings` has the number of findings of each code.
      run: Contents of `run.json`.
      metrics: Metrics that the runner reports (`schemas/metrics.py`); some runners report none.
      notes: A sentence for each given setting that had no effect on the images.
    """

    path: str
    dataset: Dataset
    outcome: Mapping[str, Any]
    run: Mapping[str, Any]
    metrics: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        """Number of records in all splits."""
        return self.dataset.all_records

    @property
    def splits(self) -> dict[str, int]:
        """Split -> number of records."""
        return {split: self.dataset.records(split) for split in self.dataset.splits}

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names in the order of ids."""
        return self.dataset.labels

    def __repr__(self) -> str:
        splits = ", ".join(f"{split}: {count:,}" for split, count in self.splits.items())
        classes = counted(len(self.dataset.classes), "class")
        return f"<{printable(self.path)}: {counted(self.records, 'record')} ({splits}), {classes}>"

    def _repr_html_(self) -> str:
        """Returns what a notebook shows: the ledger of each split, and the reasons for images left out."""
        head = _row("th", ("split", *LEDGER_COLUMNS))
        rows = "".join(_row("td", row) for row in ledger_rows(self.dataset.ledger))
        reasons = [
            f"{outcome}: {count:,} {reason}"
            for outcome, of_outcome in self.dataset.ledger["reasons"].items()
            for reason, count in of_outcome.items()
        ]
        lines = [f"<br>{html.escape(line)}" for line in (*reasons, *self.outcome["warnings"], *self.notes)]
        return f"<p>{html.escape(repr(self))}{''.join(lines)}</p><table>{head}{rows}</table>"

    @property
    def findings(self) -> Mapping[str, int]:
        """Number of findings of each code, such as `LABEL_CONFLICT`."""
        return dict(self.outcome["findings"])

    def as_json(self) -> dict[str, Any]:
        """Returns the result as `--json` prints it."""
        made, outcome = self.dataset, self.outcome
        sizes = {
            split: {
                "records": made.records(split),
                "shards": len(shards),
                "bytes": sum(shard.bytes for shard in shards),
            }
            for split, shards in made.splits.items()
        }
        totals = {name: sum(size[name] for size in sizes.values()) for name in ("records", "shards", "bytes")}
        return {
            "output": printable(self.path),
            "fingerprint": made.fingerprint,
            **totals,
            "classes": len(made.classes),
            "splits": sizes,
            "ledger": dict(made.ledger),
            "findings": self.findings,
            "boxes": dict(outcome.get("boxes") or {}),
            **{name: outcome.get(name, 0) for name in _COUNTS},
            "inputs": _inputs(self.run),
            "seconds": self.run["seconds"],
            "convert_seconds": self.run["convert_seconds"],
            "metrics": dict(self.metrics),
            "notes": list(self.notes),
            "warnings": list(outcome["warnings"]),
        }


@dataclass(frozen=True)
class RebuildResult:
    """The result of a rebuild.

    Attributes:
      output: Directory of the versions.
      version: The new version, or the latest if nothing changed.
      changed: Whether there is a new version.
      outcome: Contents of the run's file in `_work/outcomes/` of the output.
    """

    output: str
    version: str
    changed: bool
    outcome: Mapping[str, Any] = field(repr=False)

    @property
    def path(self) -> str:
        """The dataset directory of the version."""
        return version_path(self.output, self.version)

    def as_json(self) -> dict[str, Any]:
        """Returns the result as `--json` prints it."""
        return {
            "output": printable(self.output),
            "dataset_version": self.version,
            "path": printable(self.path),
            "changed": self.changed,
            **{name: self.outcome[name] for name in _OF_REBUILD},
        }


def ledger_rows(ledger: Mapping[str, Any]) -> list[list[object]]:
    """Returns the rows of a ledger's table: one for each split, and the total."""
    rows = [
        [split, *(counts[name] for name in LEDGER_COLUMNS)]
        for split, counts in by_split(ledger["splits"]).items()
    ]
    return [*rows, ["all", *(ledger[name] for name in LEDGER_COLUMNS)]]


def _row(tag: str, values: Iterable[object]) -> str:
    """Returns a row of a table in HTML."""
    texts = (f"{value:,}" if isinstance(value, int) else str(value) for value in values)
    return f"<tr>{''.join(f'<{tag}>{html.escape(text)}</{tag}>' for text in texts)}</tr>"


def _inputs(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"path": path, "detected_as": detected_as}
        for path, detected_as in zip(run["input"], run["detected_as"])
    ]
