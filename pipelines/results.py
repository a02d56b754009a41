"""Results of conversions and rebuilds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardwright.schemas.dataset import Dataset
from shardwright.schemas.version import version_path


@dataclass(frozen=True)
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
    def findings(self) -> Mapping[str, int]:
        """Number of findings of each code, such as `LABEL_CONFLICT`."""
        return dict(self.outcome["findings"])


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
    outcome: Mapping[str, Any]

    @property
    def path(self) -> str:
        """The dataset directory of the version."""
        return version_path(self.output, self.version)
