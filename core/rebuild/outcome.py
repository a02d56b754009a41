"""Stores the outcome of each run in its own file, for commands that wait and for steps that run again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shardwright.core import storage
from shardwright.core.dataset_files import write_text
from shardwright.core.rebuild.task import RebuildTask
from shardwright.schemas.dataset import WORK_DIR, pretty_json

OUTCOMES_DIR = f"{WORK_DIR}/outcomes"
#: Number of outcomes that are kept.
MAX_OUTCOMES = 30


def outcome_file(task: RebuildTask) -> str:
    """Returns the path of a run's outcome, relative to the output."""
    return f"{OUTCOMES_DIR}/{task.version}-{task.holder[:8]}.json"


def read_outcome(task: RebuildTask) -> dict[str, Any] | None:
    """Returns the outcome that the last step of a rebuild wrote, or None if there is none.

    Raises:
      EngineError: If the storage failed.
    """
    path = storage.join(task.output, outcome_file(task))
    with storage.translated_errors("read", path):
        try:
            return dict(json.loads(storage.read_bytes(path)))
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
            return None


def write_outcome(task: RebuildTask, outcome: Mapping[str, Any]) -> None:
    """Writes the outcome of this run. The next run may start immediately, so each run has its own file.

    Raises:
      EngineError: If the storage failed.
    """
    with storage.translated_errors("write to", task.output):
        write_text(task.output, outcome_file(task), pretty_json(outcome))
        folder = storage.join(task.output, OUTCOMES_DIR)
        for file in storage.list_files(folder)[:-MAX_OUTCOMES]:
            storage.remove(storage.join(folder, file))
