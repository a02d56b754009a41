"""Returns to the version before the latest, or to another one."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from shardwright.core import storage, versions
from shardwright.core.dataset_files import read_dataset
from shardwright.pipelines import options as cli_options
from shardwright.pipelines.command import CommandResult
from shardwright.pipelines.tables import console
from shardwright.pipelines.versions import output_of, read_versions, redraw_index
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.plain_text import printable, shell_word
from shardwright.schemas.version import (
    LATEST_JSON,
    Pointer,
    VersionRecord,
    VersionState,
    split_version,
    version_path,
)

EXAMPLE = "shardwright rollback pets/"


class RollbackResult(NamedTuple):
    """The result of a rollback.

    Attributes:
      output: Directory of the versions.
      version: The version that readers get now.
      left: The version that they got before; empty if it is the same, or there is none.
      withdrawn: Whether that version is withdrawn now, so that no rebuild publishes the same content again.
      warning: A problem that did not stop the command, or a note that it changed nothing; empty for none.
    """

    output: str
    version: str
    left: str
    withdrawn: bool
    warning: str = ""

    def as_json(self) -> dict[str, Any]:
        """Returns the result as `--json` prints it."""
        return {
            "output": printable(self.output),
            "dataset_version": self.version,
            "left": self.left or None,
            "withdrawn": self.withdrawn,
            "warnings": [self.warning] if self.warning else [],
        }


def rollback(output: str | os.PathLike[str], version: str = "") -> RollbackResult:
    """Returns to a previous version, like `shardwright rollback`.

    The current version is marked as withdrawn in its `version.json` before the pointer is switched. If the
    command is interrupted in between, run it again. A return to a withdrawn version removes the mark.

    Without `version`, a repeated rollback changes nothing: it returns to the version before, and then only
    to a named version, until a rebuild or `publish` publishes another one.

    Args:
      output: Directory of the versions.
      version: Version to return to; empty for the one before the latest.

    Returns:
      The version that readers get now.

    Raises:
      UsageError: If the version does not exist, or there is none before the latest; nothing was changed.
      EngineError: If another process switched the pointer meanwhile, or the storage or the machine failed.
    """
    output = os.fspath(output)
    if not version:
        output, version = split_version(output)
    output = output_of(output)
    records = read_versions(output, version)
    pointer, tag = versions.read_pointer(output, damaged_is_none=bool(version))
    current = pointer.version if pointer else ""
    target = records[version] if version else _before(output, records, pointer)
    fingerprint = _checked(output, target)
    left = records.get(current)
    # A version withdrawn by mistake comes back, and the version that was used meanwhile is not bad.
    comes_back = target.state is VersionState.WITHDRAWN
    goes_back = left is not None and not comes_back and (not version or target.version < current)
    is_damaged = left is not None and left.state is VersionState.DAMAGED
    is_withdrawn = goes_back and not is_damaged
    if target.version != current:
        if left is not None and is_withdrawn and left.state is not VersionState.WITHDRAWN:
            versions.write_version_record(output, replace(left, state=VersionState.WITHDRAWN))
        else:
            note_publication(output, left, pointer)
        previous = target.version if goes_back else newest_published(records, target.version)
        if not versions.switch_pointer(
            output, Pointer(target.version, fingerprint, time.time(), previous), tag
        ):
            if left is not None and is_withdrawn:
                versions.write_version_record(output, left)
            raise moved_meanwhile(output)
        versions.located(f"{output}@{target.version}")  # retention may have removed it meanwhile
    if comes_back:
        versions.write_version_record(output, replace(target, state=VersionState.PUBLISHED))
    moved = left is not None and target.version != current
    notes = [
        f"version {current} is not marked as withdrawn, because its version.json is damaged; a rebuild that "
        "makes the same data again is still refused"
        if moved and goes_back and is_damaged
        else "",
        "" if moved or version else _repeated(output, records, current),
        redraw_index(output),
    ]
    warning, left_version = "; ".join(filter(None, notes)), current if moved else ""
    return RollbackResult(output, target.version, left_version, moved and is_withdrawn, warning)


def _repeated(output: str, records: Mapping[str, VersionRecord], current: str) -> str:
    """Returns the warning of a repeated rollback."""
    # A rollback to the latest version probably started from one of these.
    gone = (VersionState.WITHDRAWN, VersionState.DAMAGED)
    left = max((name for name in records if name != current and records[name].state in gone), default="")
    since = f" from {left}" if left else ""
    previous = newest_published(records, current)
    further = f"; go further back with shardwright rollback {shell_word(output)} --to {previous}"
    return f"nothing changed since the rollback{since}{further if previous else ''}"


def note_publication(output: str, latest: VersionRecord | None, pointer: Pointer | None) -> None:
    """Records when the latest version was published, if its rebuild was interrupted before it could.

    Without that time, it counts as never published once the pointer names another one.
    """
    if latest is not None and latest.is_unseen and pointer is not None:
        versions.mark_published(output, latest, pointer.published)


def newest_published(records: Mapping[str, VersionRecord], before: str) -> str:
    """Returns the newest published version before another one; empty if there is none."""
    published = (name for name, record in records.items() if record.state is VersionState.PUBLISHED)
    return max((name for name in published if name < before), default="")


def moved_meanwhile(output: str) -> EngineError:
    """Returns the error for a pointer that another process switched first."""
    return EngineError(
        f"{storage.join(output, LATEST_JSON)} was changed by another process, such as a "
        "rebuild, at the same time and was left as it is; check it with shardwright versions "
        f"{shell_word(output)}, then run again if needed."
    )


def _before(output: str, records: Mapping[str, VersionRecord], pointer: Pointer | None) -> VersionRecord:
    """Returns the version before the latest."""
    word = shell_word(output)
    if pointer is None:
        raise UsageError(
            f"No version of {output} is published yet, so there is nothing to roll back; see "
            f"shardwright versions {word}."
        )
    if pointer.previous == pointer.version and pointer.version in records:
        return records[pointer.version]  # a rollback already happened
    named = records.get(pointer.previous)
    if named is not None and named.state is VersionState.PUBLISHED:
        return named
    previous = newest_published(records, pointer.version)
    if not previous:
        raise UsageError(
            f"{output} has no published version before {pointer.version} to return to; name one "
            f"that shardwright versions {word} lists."
        )
    return records[previous]


def _checked(output: str, record: VersionRecord) -> str:
    """Checks that readers can return to a version, and returns the fingerprint of its dataset.

    Raises:
      UsageError: If it was never published, or is not complete.
    """
    versions.require_judged(output, record)
    place = f"{output}@{record.version}"
    if record.state is VersionState.REFUSED:
        raise UsageError(
            f"{place} was refused by a gate, and readers never got it; publish it with "
            f"{versions.accept_command(place, record)}."
        )
    versions.located(place)
    return read_dataset(version_path(output, record.version)).fingerprint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("output", metavar="OUT", help="the directory of the versions")
    parser.add_argument(
        "version", nargs="?", default="", metavar="V",
        help="the version to return to (default: the version before)",
    )  # fmt: skip
    cli_options.add_text(parser, "to", "VERSION", "the same as V")


def execute(options: argparse.Namespace) -> CommandResult:
    """Runs the command."""
    if options.to and options.version not in ("", options.to):
        raise UsageError(f"V is {options.version} and --to is {options.to}; name one version.")
    result = rollback(options.output, options.to or options.version)
    return CommandResult(lambda: print_rollback(result), result.as_json)


def print_rollback(result: RollbackResult) -> None:
    """Prints which version readers get now, and how to undo the rollback."""
    out = console()
    if not result.left:
        out.print(f"  {result.output}: {result.version} is the latest")
    else:
        what = "is withdrawn" if result.withdrawn else "stays published"
        out.print(
            f"  {result.output}: from {result.left} to {result.version}: "
            f"{result.version} is the latest from now on; {result.left} {what}"
        )
        back = f"shardwright rollback {shell_word(result.output)} {result.left}"
        out.print(f"  running readers keep the version they opened; to undo this: {back}")
    if result.warning:
        out.print(f"  {result.warning}")
