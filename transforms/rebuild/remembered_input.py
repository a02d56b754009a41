"""Stores the state of the input of a rebuild, with the version that was made from it."""

from __future__ import annotations

import json
from dataclasses import replace

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.dataset import QUARANTINE_JSONL, Dataset
from shardwright.schemas.input_state import INPUT_JSON
from shardwright.schemas.version import VersionRecord, VersionState, version_path
from shardwright.transforms import storage
from shardwright.transforms.dataset_files import read_dataset
from shardwright.transforms.lease import read_holder
from shardwright.transforms.rebuild.begin import PreviousState, read_input
from shardwright.transforms.rebuild.decision import Decision
from shardwright.transforms.rebuild.leftovers import warned
from shardwright.transforms.rebuild.task import RebuildTask


def remember_input(
    task: RebuildTask, previous: PreviousState, decision: Decision, record: VersionRecord | None
) -> list[str]:
    """Stores the state of the input if it proves that the latest version is up to date.

    Without it, the next run only takes longer, so a failure is a warning.

    Args:
      task: The rebuild.
      previous: State at the beginning.
      decision: The decision, with the state of the input.
      record: Record of the new version. None if nothing changed.

    Returns:
      Warnings.
    """
    if decision.input is None or previous.ended or (record is None and decision.build):
        return []
    if record is not None and record.state is not VersionState.PUBLISHED:
        return []  # the next run has to build and judge the same again
    version = record.version if record is not None else previous.version
    warnings: list[str] = []
    with warned(warnings, f"{INPUT_JSON} could not be written"):
        made = previous.dataset if record is None else read_dataset(version_path(task.output, version))
        if made is None or may_become_readable(version_path(task.output, version), made):
            return []
        state = replace(decision.input, version=version, fingerprint=made.fingerprint)
        if state != read_input(task.output) and read_holder(task.output) == task.holder:
            storage.write_bytes(storage.join(task.output, INPUT_JSON), state.dumps().encode())
    return warnings


def may_become_readable(directory: str, made: Dataset) -> bool:
    """Returns whether an image of a version could not be read, so that each run tries it again.

    Raises:
      OSError: If the list of bad images cannot be read.
    """
    if not made.ledger["quarantined"]:
        return False
    lines = storage.read_bytes(storage.join(directory, QUARANTINE_JSONL)).splitlines()
    try:
        return any(_may_be_readable(json.loads(line)) for line in lines)
    except (ValueError, KeyError, TypeError):  # the list is damaged
        return True


def _may_be_readable(line: dict[str, str]) -> bool:
    if line["stage"] == Stage.LIST:
        return False  # each listing finds it again
    if line["reason"] == QuarantineReason.BAD_ANNOTATION:
        return line["stage"] == Stage.READ
    return line["reason"] == QuarantineReason.UNREADABLE
