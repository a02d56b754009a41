"""Lists the versions of a dataset, the newest first."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shardwright.core import storage
from shardwright.core.report.index_page import write_index
from shardwright.core.versions import list_versions, no_such_version, read_pointer, version_names
from shardwright.pipelines import options as cli_options
from shardwright.pipelines.command import CommandResult
from shardwright.pipelines.results import changes_text
from shardwright.pipelines.tables import console, print_table, visible
from shardwright.schemas.dataset import DATASET_JSON
from shardwright.schemas.errors import ShardwrightError, UsageError
from shardwright.schemas.plain_text import printable, shell_word
from shardwright.schemas.units import format_size
from shardwright.schemas.version import (
    LATEST_JSON,
    PINNED_JSON,
    VersionRecord,
    VersionState,
    path_advice,
    pin_text,
    split_version,
    time_text,
    version_path,
)

EXAMPLE = "shardwright versions pets/ --pin 20261121T020000Z"
_FINGERPRINT_DIGITS = 12
#: Columns that are left out on a narrow terminal, the first one first.
_DISPENSABLE = ("fingerprint", "published (UTC)", "bytes", "records")
#: Number of characters between two columns, and minimum width of the column of changes.
_MARGIN, _FOLDED = 3, 21


class VersionsResult(NamedTuple):
    """The versions of a dataset.

    Attributes:
      output: Directory of the versions.
      latest: The version that readers get; empty for none.
      versions: Record of each version, the newest first; one with a damaged `version.json` has the state
        `damaged` and a problem.
      problem: Problem with `latest.json`; empty for none.
    """

    output: str
    latest: str
    versions: tuple[VersionRecord, ...]
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        """Returns the list as `--json` prints it."""
        return {
            "output": printable(self.output),
            "latest": self.latest or None,
            "versions": [self._row(record) for record in self.versions],
            "warnings": [self.problem] if self.problem else [],
        }

    def _row(self, record: VersionRecord) -> dict[str, Any]:
        row = {name: value for name, value in record.as_json().items() if name != "files"}
        problem = {"problem": record.problem} if record.problem else {}
        return {**row, "latest": record.version == self.latest, "pinned": record.pinned, **problem}


def versions(output: str | os.PathLike[str], *, pin: str = "", unpin: str = "") -> VersionsResult:
    """Lists the versions of a dataset, like `shardwright versions`.

    Args:
      output: Directory of the versions.
      pin: Version to keep in spite of any job's retention; empty for none.
      unpin: Version that retention may remove again; empty for none.

    Returns:
      The versions.

    Raises:
      UsageError: If there are no versions, or the named one does not exist.
      EngineError: If the storage or the machine failed.
    """
    output = output_of(os.fspath(output))
    records = read_versions(output, pin, unpin)
    if pin and pin == unpin:
        raise UsageError(f"{pin} is in both --pin and --unpin; choose one.")
    if pin and records[pin].state is VersionState.BUILDING:
        raise UsageError(
            f"--pin {pin}: this version is not complete, and the next rebuild continues or removes it; pin "
            "it when it is complete."
        )
    if pin:
        path = storage.join(version_path(output, pin), PINNED_JSON)
        with storage.translated_errors("write", path):
            storage.write_bytes(path, pin_text(time.time()).encode())
    if unpin:
        path = storage.join(version_path(output, unpin), PINNED_JSON)
        with storage.translated_errors("remove", path):
            storage.remove(path)
    problem, latest, fingerprint = "", "", ""
    try:
        pointer, _ = read_pointer(output)
        if pointer:
            latest, fingerprint = pointer.version, pointer.fingerprint
    except UsageError as error:
        problem = error.message
    if latest and latest not in records and latest not in version_names(output):  # not even since then
        problem = (
            f"{LATEST_JSON} names version {latest}, which is missing; return to another one with shardwright "
            f"rollback {shell_word(output)}."
        )
    if latest in records and records[latest].fingerprint not in ("", fingerprint):
        problem = (
            f"{LATEST_JSON} and version {latest} have different fingerprints, so one of them was changed; "
            f"restore it, or go to another version and back with shardwright rollback {shell_word(output)} "
            "--to VERSION."
        )
    if pin or unpin:
        records = read_versions(output)
        problem = "; ".join(filter(None, (problem, redraw_index(output))))
    return VersionsResult(output, latest, tuple(records.values())[::-1], problem)


def output_of(output: str) -> str:
    """Returns the directory of versions that a command was given.

    Raises:
      UsageError: If it is missing, is a single version, or its storage is unknown.
    """
    if not output:
        raise UsageError("Name the directory that holds the versions, the --output of shardwright rebuild.")
    base, version = split_version(output)
    if version:
        raise UsageError(f"{output} is one version; name the directory that holds all, {base}.")
    if not storage.knows_conditions(output):
        read_pointer(output)  # says which storages can
    storage.require_known("OUT", output)
    return output if output == "/" else output.rstrip("/")


def read_versions(output: str, *named: str) -> dict[str, VersionRecord]:
    """Returns the record of each version, the oldest first.

    Args:
      output: Directory of the versions.
      *named: Versions that the user named, which must exist; empty for none.

    Raises:
      UsageError: If there are no versions, or a named one does not exist.
      EngineError: If the storage failed.
    """
    records = {record.version: record for record in list_versions(output)}
    if records:
        for name in filter(None, named):
            if name not in records:
                raise no_such_version(output, name, list(records))
        return records
    with storage.translated_errors("look for", output):
        is_dataset = storage.exists(storage.join(output, DATASET_JSON))
    if is_dataset:
        what = "is a dataset without versions; shardwright rebuild makes versions in another place"
    elif storage.is_remote(output) or os.path.isdir(output):
        what = "holds no versions; check the path, or make one with shardwright rebuild"
    elif os.path.lexists(output):
        what = "is not a directory; name the --output of shardwright rebuild"
    else:
        what = f"does not exist; {path_advice(output)}"
    raise UsageError(f"{output} {what}.")


def redraw_index(output: str) -> str:
    """Writes `index.html` again; returns a warning if that failed, since nothing depends on it."""
    try:
        write_index(output)
    except ShardwrightError as error:
        return f"index.html could not be updated: {error.message}"
    return ""


def print_versions(result: VersionsResult) -> None:
    """Prints the versions."""
    out = console()
    rows = [_row(record, result.latest) for record in result.versions]
    columns = _fitting(out.width, rows)
    picked = [[row[name] for name in columns] for row in rows]
    print_table(out, columns, picked, whole=("version", "state"))
    for record in result.versions:
        if record.problem:
            out.print(f"  {record.problem}")
        for acceptance in record.acceptances:
            out.print(f"  {record.version}: {visible(str(acceptance))}")
    if result.problem:
        out.print(f"  {result.problem}")
    elif not result.latest:
        out.print("  no version is published, so readers cannot open one yet")


def _fitting(width: int, rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Returns the columns that fit on a terminal; less important ones are left out first."""

    def room(column: str) -> int:
        cells = max(len(row[column]) for row in rows)
        return max(min(cells, _FOLDED) if column == "what changed" else cells, len(column)) + _MARGIN

    columns = list(rows[0])
    for name in _DISPENSABLE:
        if sum(map(room, columns)) >= width:
            columns.remove(name)
    return columns


def _row(record: VersionRecord, latest: str) -> dict[str, str]:
    """Returns the cells of a version by their columns."""
    unseen = record.is_unseen and record.version != latest
    marks = ["passed, not published" if unseen else record.state.value]
    if record.version == latest:
        marks.append("latest")
    if record.pinned:
        marks.append("pinned")
    complete = bool(record.fingerprint)
    passed = record.finished and record.state in (VersionState.PUBLISHED, VersionState.WITHDRAWN)
    return {
        "version": record.version,
        "state": ", ".join(marks),
        "published (UTC)": time_text(record.finished).removesuffix(" UTC") if passed else "",
        "records": f"{record.records:,}" if complete else "",
        "bytes": format_size(record.total_bytes) if complete else "",
        "what changed": what_changed(record),
        "fingerprint": record.fingerprint[:_FINGERPRINT_DIGITS],
    }


def what_changed(record: VersionRecord) -> str:
    """Returns the changes of images since the previous version, or why this version was refused."""
    changes = changes_text(record.changes)
    if record.state is VersionState.REFUSED:
        names = list(dict.fromkeys(refusal.name for refusal in record.errors))
        return "; ".join(filter(None, (changes, f"refused: {', '.join(names)}" if names else "")))
    if changes or not record.fingerprint:
        return changes
    return "no image" if record.previous else "the first version"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("output", metavar="OUT", help="the directory of the versions")
    cli_options.add_text(parser, "pin", "V", "keep this version until --unpin")
    cli_options.add_text(parser, "unpin", "V", "let retention remove this version again")


def execute(options: argparse.Namespace) -> CommandResult:
    """Runs the command."""
    result = versions(options.output, pin=options.pin, unpin=options.unpin)
    return CommandResult(lambda: print_versions(result), result.as_json)
