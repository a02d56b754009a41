"""How pages show one version of a dataset: its state in words, and what the gates said of it."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import NamedTuple

from shardwright.schemas.codes import Severity
from shardwright.schemas.shell import shell_word
from shardwright.schemas.version import (
    VersionRecord,
    VersionState,
    created_at,
    split_version,
    version_name,
)
from shardwright.schemas.violation import Violation
from shardwright.transforms import storage

#: More of a version's refusals than this are counted.
MAX_REFUSALS = 12
#: More names than this are accepted by their gates.
_MAX_NAMES = 4
#: The year 2200: what is later is no time of a run.
_FAR = 7_258_118_400
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,60}")


class State(NamedTuple):
    """A state as pages show it: never by its colour alone.

    Attributes:
      sign: a letter that stands for it.
      word: its name.
      tone: good, error, warning or note: the colour.
      meaning: a sentence.
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
    VersionState.REFUSED: State(
        "✗", "refused", "error", "A gate did not let it pass, so readers do not get it."
    ),
    VersionState.WITHDRAWN: State("↩", "withdrawn", "warning", "It was published, and rolled back later."),
    VersionState.BUILDING: State(
        "…",
        "building",
        "note",
        "It is being built, or its run was cut off: the next one goes on with it.",
    ),
}


class ShownRefusal(NamedTuple):
    """What a gate said, as pages show it.

    Attributes:
      severity: error or warning.
      gate: that said it.
      name: of the limit or code.
      message: one line.
      accepted: whether somebody let it pass.
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
      name: of the version.
      began: when it was begun, in words.
      stamp: the same for programs.
      state: how far it came.
      refusals: what the gates said, errors first.
      unlisted: what they said besides.
      errors: number of those that refuse it, accepted or not.
      warnings: number of those that only warn.
      accept: the command that lets a refused version pass; empty for others.
      previous: the version that it was made from; empty for the first.
      acceptances: who let refusals pass, when and why, a line each.
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
      place: what commands call it, `OUT@V`.
      version: its name.
      record: its `version.json`; None if that cannot be read.
      most: refusals that are listed.
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
            str(refusal.message).removeprefix(f"{refusal.name}: "),  # limits say their names themselves
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
    """Whether somebody let pass what a gate refused."""
    return not {"all", str(refusal.gate), str(refusal.name)}.isdisjoint(map(str, accepted))


def accept_command(place: str, record: VersionRecord) -> str:
    """Returns the command that publishes a refused version nevertheless.

    Args:
      place: of the version, `OUT@V`.
      record: its `version.json`.
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
    """Returns the time that a version is called after; None if that is none that a run can have."""
    seconds = created_at(version)  # eight digits are not always a date
    return seconds if 0 < seconds < _FAR else None


def place_of(directory: str) -> tuple[str, str]:
    """Tells a version's directory from others.

    Returns:
      What commands call it (`OUT@V`) and the version's name; the directory and nothing for any other dataset.
    """
    absolute = directory if storage.is_remote(directory) else os.path.abspath(directory)
    for path in (directory.rstrip("/"), absolute.rstrip("/")):
        place = version_name(path)
        if place != path:
            return place, split_version(place)[1]
    return directory, ""
