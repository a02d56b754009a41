"""What conversions and rebuilds return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardwright.schemas.dataset import Dataset
from shardwright.schemas.version import version_path


@dataclass(frozen=True)
class ConvertResult:
    """What a conversion made.

    Attributes:
      path: the dataset directory.
      dataset: its `dataset.json`.
      outcome: what `_work/outcome.json` says of the run; `findings` in it counts what the verification found.
      run: what `run.json` says of it.
      metrics: what the runner counted (`schemas/metrics.py`), as far as it tells.
      notes: a sentence for each given setting of which the pictures showed that it has no effect.
    """

    path: str
    dataset: Dataset
    outcome: Mapping[str, Any]
    run: Mapping[str, Any]
    metrics: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def findings(self) -> Mapping[str, int]:
        """Number of findings of each code, such as `LABEL_CONFLICT`."""
        return dict(self.outcome["findings"])


@dataclass(frozen=True)
class RebuildResult:
    """What a rebuild came to.

    Attributes:
      output: the directory that holds the versions.
      version: the one that was made, or the latest if nothing changed.
      changed: whether a version was made.
      outcome: what the run's file in `_work/outcomes/` of the output says.
    """

    output: str
    version: str
    changed: bool
    outcome: Mapping[str, Any]

    @property
    def path(self) -> str:
        """The dataset directory of the version."""
        return version_path(self.output, self.version)
