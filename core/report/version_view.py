"""One version of a dataset on a page: its state in words, and the verdict of its gates."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import NamedTuple

from shardwright.core import storage
from shardwright.schemas.codes import Severity
from shardwright.schemas.plain_text import shell_word
from shardwright.schemas.version import (
    VersionRecord,
    VersionState,
    created_at,
    split_version,
    version_name,
)
from shardwright.schemas.violation import Violation

#: Largest number of a version's refusals that are listed. The others are counted.
MAX_REFUSALS = 12
#: Largest number of names in the command that accepts a version. With more, gates are accepted as a whole.
_MAX_NAMES = 4
#: The year 2200: a later time is not the time of a run.
_FAR = 7_258_118_400
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,60}")


class State(NamedTuple):
    """A state as pages show it, which never depends on color alone.

    Attributes:
      sign: Character for the state.
      word: Name of the state.
      tone: Color: good, error, warning or note.
      meaning: Sentence that explains the state.
    """

    sign: str
    word: str
    tone: str
    meaning: str


DAMAGED = State(
    "?",
    "damaged",
    "warning",
    "Its version.json cannot be read, so it is skipped; restore that file, or remove the directory.",
)
_STATES = {
    VersionState.DAMAGED: DAMAGED,
    VersionState.PUBLISHED: State("✓", "published", "good", "It passed its gates."),
    VersionState.REFUSED: State("✗", "refused", "error", "A gate refused it, so readers do not get it."),
    VersionState.WITHDRAWN: State("↩", "withdrawn", "warning", "It was published, and rolled back later."),
    VersionState.BUILDING: State(
        "…",
        "building",
        "note",
        "It is being built, or its run was interrupted and the next run continues it.",
    ),
}


class ShownRefusal(NamedTuple):
    """A violation of a gate, as pages show it.

    Attributes:
      severity: Error or warning.
      gate: Gate that found the violation.
      name: Name of the limit or code.
      message: Message, one line.
      accepted: Whether somebody accepted it.
    """

    severity: str
    gate: str
    name: str
    message: str
    accepted: bool


@dataclass(frozen=True)
class VersionView:
    """A version as pages show it.

    Attributes:
      name: Name of the version.
      began: When the work on the version began, as text for people.
      stamp: The same time for programs.
      state: State of the version.
      refusals: Listed violations, errors first.
      unlisted: Number of violations that are not listed.
      errors: Number of violations that are errors, accepted or not.
      warnings: Number of violations that are warnings.
      accept: Command that publishes a refused version. Empty for other versions.
      previous: Version from which this one was made. Empty for the first version.
      acceptances: Who accepted violations, when and why, one line each.
    """

    name: str
    began: str
    stamp: str
    state: State
    refusals: tuple[ShownRefusal, ...] = ()
    unlisted: int = 0
    errors: int = 0
    warnings: int = 0
    accept: str = ""
    previous: str = ""
    acceptances: tuple[str, ...] = ()


def version_view(
    place: str, version: str, record: VersionRecord | None, most: int = MAX_REFUSALS
) -> VersionView:
    """Returns a version as pages show it.

    Args:
      place: Name of the version for commands, `OUT@V`.
      version: Name of the version.
      record: Its `version.json`. None if that cannot be read.
      most: Largest number of violations that are listed.
    """
    seconds = version_seconds(version)
    began, stamp = (
        "" if seconds is None else time.strftime(form, time.gmtime(seconds))
        for form in ("%Y-%m-%d %H:%M UTC", "%Y-%m-%dT%H:%M:%SZ")
    )
    if record is None:
        return VersionView(version, began, stamp, DAMAGED)
    rows = [
        ShownRefusal(
            refusal.severity.value, str(refusal.gate), str(refusal.name),
            str(refusal.message).removeprefix(f"{refusal.name}: "),  # messages of limits begin with the name
            is_accepted(refusal, record.accepted),
        )
        for refusal in sorted(record.refusals, key=lambda refusal: refusal.severity is not Severity.ERROR)
    ]  # fmt: skip
    refused = record.state is VersionState.REFUSED
    return VersionView(
        name=version,
        began=began,
        stamp=stamp,
        state=_STATES[record.state],
        refusals=tuple(rows[:most]),
        unlisted=max(0, len(rows) - most),
        errors=(errors := sum(row.severity == Severity.ERROR for row in rows)),
        warnings=len(rows) - errors,
        accept=accept_command(place, record) if refused else "",
        previous=str(record.previous),
        acceptances=tuple(map(str, record.acceptances)),
    )


def is_accepted(refusal: Violation, accepted: tuple[str, ...]) -> bool:
    """Returns whether somebody accepted a violation."""
    return not {"all", str(refusal.gate), str(refusal.name)}.isdisjoint(map(str, accepted))


def accept_command(place: str, record: VersionRecord) -> str:
    """Returns the command that publishes a refused version.

    Args:
      place: Name of the version for commands, `OUT@V`.
      record: Its `version.json`.
    """
    against = [
        refusal
        for refusal in record.refusals
        if refusal.severity is Severity.ERROR and not is_accepted(refusal, record.accepted)
    ]
    names = list(dict.fromkeys(str(refusal.name) for refusal in against))
    if len(names) > _MAX_NAMES or not all(map(_PLAIN.fullmatch, names)):
        names = list(dict.fromkeys(str(refusal.gate) for refusal in against))
    if not all(map(_PLAIN.fullmatch, names)):
        names = ["all"]
    option = f" --accept {','.join(names)}" if names else ""
    return f"shardwright publish {shell_word(place)}{option}"


def version_seconds(version: str) -> float | None:
    """Returns the time in a version's name; None if no run can have that time."""
    seconds = created_at(version)  # eight digits are not always a date
    return seconds if 0 < seconds < _FAR else None


def place_of(directory: str) -> tuple[str, str]:
    """Returns the names of a dataset for the page, if it is a version.

    Returns:
      The name for commands (`OUT@V`) and the version's name. For other datasets, the directory and "".
    """
    absolute = directory if storage.is_remote(directory) else os.path.abspath(directory)
    for path in (directory.rstrip("/"), absolute.rstrip("/")):
        place = version_name(path)
        if place != path:
            return place, split_version(place)[1]
    return directory, ""
