"""The last steps of a rebuild: switch the pointer, store the input, clean up, notify, release the lease."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from shardwright.core import storage, versions
from shardwright.core.dataset_files import read_dataset
from shardwright.core.lease import read_holder
from shardwright.core.rebuild.begin import PreviousState, Warn, is_abandoned, read_input, warned
from shardwright.core.rebuild.compare import Decision, remember, scrub_facts
from shardwright.core.rebuild.notify import run_hooks, run_values, write_metrics
from shardwright.core.rebuild.task import RebuildTask, read_outcome, stage, write_outcome
from shardwright.core.sources.spool import Spool
from shardwright.schemas.codes import ExitCode, QuarantineReason, Severity, Stage
from shardwright.schemas.configuration.job import Hook
from shardwright.schemas.dataset import QUARANTINE_JSONL, Dataset
from shardwright.schemas.errors import DataRefused, EngineError, ShardwrightError, UsageError
from shardwright.schemas.plain_text import printable, shell_word
from shardwright.schemas.units import counted, format_size
from shardwright.schemas.version import (
    INDEX_HTML,
    INPUT_JSON,
    Pointer,
    VersionRecord,
    VersionState,
    version_path,
)

NO_CHANGE, FAILURE = "no_change", "failure"
_SHOWN = 3


def publish(task: RebuildTask, previous: PreviousState, record: VersionRecord | None) -> VersionRecord | None:
    """Switches the pointer to a version that passed, unless that was already done.

    Returns:
      The record of the version. None if no version was built.

    Raises:
      EngineError: If another rebuild has taken the lease or moved the pointer, or the storage failed.
    """
    if previous.ended:  # the earlier steps did nothing
        stored = versions.read_version_record(task.output, task.version)
        record = stored if stored.state is not VersionState.BUILDING else None
    if record is None or record.state is not VersionState.PUBLISHED or read_outcome(task) is not None:
        return record
    with storage.translated_errors("publish a version in", task.output):
        current, _ = versions.read_pointer(task.output)
        if current is None or current.version != task.version:
            text = f"{counted(record.records, 'record')}, {format_size(record.total_bytes)}"
            pointer = Pointer(record.version, record.fingerprint, time.time(), previous.version)
            task.hold.keep()
            if not versions.switch_pointer(task.output, pointer, previous.tag):
                raise EngineError(
                    f"The latest version of {task.output} was changed meanwhile, as by a "
                    f"rollback, so version {record.version} was not published; run again."
                )
            stage(task, "published", text, records=record.records, bytes=record.total_bytes)
    # Without this time, the version counts as never published once the pointer names another one.
    return versions.mark_published(task.output, record, time.time())


def finish(
    task: RebuildTask, previous: PreviousState, decision: Decision, record: VersionRecord | None
) -> dict[str, Any]:
    """Cleans up, notifies the hooks, and gives the lease back.

    The outcome is written before the hooks run, so an interrupted hook is not run again.

    Returns:
      The outcome, as it is stored in a file in `_work/outcomes/` of the output.

    Raises:
      DataRefused: If a gate refused the version.
      EngineError: If the outcome cannot be written. A cleanup that fails is a warning.
    """
    outcome_before = read_outcome(task)
    if previous.ended:  # the engine may have run the job's listing again after the end
        remaining = f"The remaining files in {printable(task.directory)} could not be removed"
        with warned(partial(stage, task, "warning"), remaining):
            if record is None:
                versions.remove_version(task.output, task.version)
            else:
                Spool(task.directory).remove()
    if outcome_before is not None:  # the engine ran this step again
        return _raise_refusal(outcome_before)
    outcome = _outcome(task, previous, decision, record)
    warn = outcome["warnings"].append
    gone = _tidy_up(task, previous, record, warn)
    with storage.translated_errors("tidy up", task.output):
        remember(task, previous, decision.scrubbed, warn)
        remember_input(task, previous, decision, record, warn)
        _write_metrics(task, record, outcome)
        write_outcome(task, outcome)
    task.hold.release()  # a hook may continue to work with the dataset
    warnings = run_hooks(task.hooks.get(outcome["state"], ()), outcome["state"], outcome)
    if warnings:
        outcome["warnings"] += warnings
        write_outcome(task, outcome)
    left = f"; removed {', '.join(gone)}" if gone else ""
    stage(task, "finished", f"{outcome['state']}{left}", state=outcome["state"], removed=gone)
    return _raise_refusal(outcome)


def _tidy_up(
    task: RebuildTask, previous: PreviousState, record: VersionRecord | None, warn: Warn
) -> list[str]:
    """Removes the versions that killed runs left or retention removes; draws the page of all versions.

    The version is already decided, so no failure here ends the run. The next run tries again.

    Returns:
      The versions that were removed.
    """
    gone: list[str] = []
    to_go: list[str] = []
    with warned(warn, f"Old versions of {printable(task.output)} could not be listed"):
        (pointer, _), records = versions.read_pointer(task.output), versions.list_versions(task.output)
        latest = pointer.version if pointer else ""
        left = [one for one in records if one.version in previous.abandoned and is_abandoned(one, latest)]
        stay = [one for one in records if one not in left]
        to_go = [*(one.version for one in left), *versions.surplus(stay, latest, task.rules, time.time())]
    for version in [*to_go, *([task.version] if record is None else [])]:
        with warned(warn, f"Version {version} could not be removed"):
            if versions.remove_version(task.output, version) and version in to_go:
                gone.append(version)
    if record is not None or gone or previous.damaged:
        from shardwright.core.report.index_page import write_index  # imports the whole report

        with warned(warn, f"{INDEX_HTML} could not be updated"):
            write_index(task.output)
    return gone


def fail(task: RebuildTask, error: ShardwrightError, reachable: bool) -> None:
    """Notifies the hooks that a rebuild failed, and gives the lease back.

    The version stays, because the next run reuses its finished shards.

    Args:
      task: The rebuild that failed.
      error: Error that ended it.
      reachable: Whether the storage answers.
    """
    outcome, warnings = tell_failure(task.hooks, error, task.output, task.started, task.version)
    for warning in warnings:
        stage(task, "warning", warning)
    if not reachable:
        return
    with contextlib.suppress(ShardwrightError):
        if not isinstance(error, UsageError) and read_holder(task.output) in ("", task.holder):
            write_metrics(task.output, run_values(outcome, time.time()))
    task.hold.release()


def tell_failure(
    hooks: Mapping[str, Sequence[Hook]],
    error: ShardwrightError,
    output: str,
    started: float,
    version: str = "",
) -> tuple[dict[str, Any], list[str]]:
    """Calls the hooks for a rebuild that failed.

    Args:
      hooks: Event -> its hooks.
      error: Error that ended the rebuild.
      output: Directory of the versions.
      started: Start of the rebuild, in seconds since the epoch.
      version: Version that was to be built. Empty if the rebuild failed before it had a name.

    Returns:
      The facts that the hooks got, and a sentence for each hook that failed.
    """
    outcome = {
        "state": FAILURE,
        "exit_code": int(error.exit_code),
        "message": error.message,
        "output": printable(output),
        "version": version,
        "seconds": round(time.time() - started, 3),
    }
    return outcome, run_hooks(hooks.get(FAILURE, ()), FAILURE, outcome)


def _write_metrics(task: RebuildTask, record: VersionRecord | None, outcome: Mapping[str, Any]) -> None:
    """Writes `metrics.prom`; adds a warning to the outcome if it cannot."""
    values = run_values(outcome, time.time())
    if record is not None:
        values["shardwright_rebuild_findings"] = record.findings
    if record is not None and record.state is VersionState.PUBLISHED:
        values["shardwright_dataset_records"] = record.records
        values["shardwright_dataset_size_bytes"] = record.total_bytes
        values["shardwright_dataset_classes"] = record.classes
    values["shardwright_dataset_versions"] = len(versions.version_names(task.output))
    pointer, _ = versions.read_pointer(task.output)
    if pointer:
        latest = pointer.fingerprint, pointer.version
        values["shardwright_dataset_latest_version_info"] = {latest: 1.0}
    outcome["warnings"].extend(write_metrics(task.output, values))


def _outcome(
    task: RebuildTask, previous: PreviousState, decision: Decision, record: VersionRecord | None
) -> dict[str, Any]:
    state, message, code = NO_CHANGE, "", ExitCode.DONE
    version, fingerprint, records, warnings = previous.version, "", 0, list(previous.damaged)
    if record is not None:
        state = "success"  # or withdrawn since
        version, fingerprint, records = record.version, record.fingerprint, record.records
        warnings += [item.message for item in record.refusals if item.severity is Severity.WARNING]
    elif previous.dataset is not None:
        fingerprint, records = previous.dataset.fingerprint, previous.dataset.all_records
    if record is not None and record.state is VersionState.REFUSED:
        state, code = "refused", ExitCode.REFUSED
        message = refusal_message(f"{task.output}@{record.version}", record)
    return {
        "holder": task.holder,
        "state": state,
        "exit_code": int(code),
        "message": message,
        "output": printable(task.output),
        "version": version,
        "previous": previous.version,
        "fingerprint": fingerprint,
        "records": records,
        "work": dict(record.work) if record is not None else {},
        "changes": dict(record.changes) if record is not None else {},
        "reasons": list(decision.reasons),
        "scrub": scrub_facts(previous, decision.scrubbed),
        "warnings": warnings,
        "started": task.started,
        "seconds": round(time.time() - task.started, 3),
    }


def refusal_message(place: str, record: VersionRecord) -> str:
    """Returns the reason for a refusal and what can be done, in one sentence."""
    messages = "; ".join(refusal.message.rstrip(".") for refusal in record.errors[:_SHOWN])
    more = f"; and {len(record.errors) - _SHOWN} more" if len(record.errors) > _SHOWN else ""
    stays = f"readers keep {record.previous}" if record.previous else "readers get none yet"
    return (
        f"Version {record.version} was refused and {stays}: {messages}{more}; look at it with "
        f"`shardwright report {shell_word(place)}`, and accept it with "
        f"`{versions.accept_command(place, record)}`."
    )


def _raise_refusal(outcome: dict[str, Any]) -> dict[str, Any]:
    if outcome["exit_code"] == ExitCode.REFUSED:
        raise DataRefused(outcome["message"])
    return outcome


def remember_input(
    task: RebuildTask, previous: PreviousState, decision: Decision, record: VersionRecord | None, warn: Warn
) -> None:
    """Stores the state of the input if it proves that the latest version is up to date.

    Without it, the next run only takes longer, so a failure is a warning.

    Args:
      task: The rebuild.
      previous: State at the beginning.
      decision: The decision, with the state of the input.
      record: Record of the new version. None if nothing changed.
      warn: Function that gets the warning.
    """
    if decision.input is None or previous.ended or (record is None and decision.build):
        return
    if record is not None and record.state is not VersionState.PUBLISHED:
        return  # the next run has to build and judge the same again
    version = record.version if record is not None else previous.version
    with warned(warn, f"{INPUT_JSON} could not be written"):
        dataset = previous.dataset if record is None else read_dataset(version_path(task.output, version))
        if dataset is None or may_become_readable(version_path(task.output, version), dataset):
            return
        state = replace(decision.input, version=version, fingerprint=dataset.fingerprint)
        if state != read_input(task.output) and read_holder(task.output) == task.holder:
            storage.write_bytes(storage.join(task.output, INPUT_JSON), state.dumps().encode())


def may_become_readable(directory: str, dataset: Dataset) -> bool:
    """Returns whether an image of a version could not be read, so that each run tries it again.

    Raises:
      OSError: If the list of bad images cannot be read.
    """
    if not dataset.ledger["quarantined"]:
        return False
    lines = storage.read_bytes(storage.join(directory, QUARANTINE_JSONL)).splitlines()
    try:
        return any(
            line["reason"] == QuarantineReason.UNREADABLE
            or (line["reason"] == QuarantineReason.BAD_ANNOTATION and line["stage"] == Stage.READ)
            for line in map(json.loads, lines)
            if line["stage"] != Stage.LIST  # each listing finds it again
        )
    except (ValueError, KeyError, TypeError):  # the list is damaged
        return True
