"""The versions of a dataset: their names, `version.json`, the pointer to the latest one, and its input."""

from __future__ import annotations

import calendar
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Self

from shardwright.schemas import dataset
from shardwright.schemas.codes import Severity
from shardwright.schemas.errors import UsageError
from shardwright.schemas.findings import Violation
from shardwright.schemas.json_values import fields_json, json_object
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import counted, format_size, listed

VERSIONS_DIR = "versions"
LATEST_JSON = "latest.json"
LEASE_JSON = "lease.json"
INDEX_HTML = "index.html"
METRICS_PROM = "metrics.prom"
SCRUB_JSON = "scrub.json"
#: Files inside a version's directory, in addition to those of every dataset.
VERSION_JSON = "version.json"
DIFF_JSON = "diff.json"
PINNED_JSON = "pinned.json"
CHECKS_DIR = "_checks"
#: Lists the sha256 of each other file in `_checks/`.
CHECK_LIST = f"{CHECKS_DIR}/sha256.json"

_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_VERSION = re.compile(r"[0-9]{8}T[0-9]{6}Z")


class VersionState(StrEnum):
    """State of a version."""

    BUILDING = "building"
    REFUSED = "refused"  # complete, but a gate refused it
    PUBLISHED = "published"
    WITHDRAWN = "withdrawn"  # published, then rolled back
    DAMAGED = "damaged"  # its version.json cannot be read; this state is never stored


class Acceptance(NamedTuple):
    """A decision to publish a version that a gate refused.

    Attributes:
      names: Accepted refusals, by their names or their gates.
      who: Account and machine, such as `ana@trainer`.
      when: Time in seconds since the epoch.
      reason: Reason in that person's words; empty if none was given.
    """

    names: tuple[str, ...]
    who: str
    when: float
    reason: str = ""

    def __str__(self) -> str:
        """Returns the decision in one line."""
        moment = time_text(self.when)
        text = f"{', '.join(self.names)} accepted by {self.who}" + (f", {moment}" if moment else "")
        return f"{text}: {self.reason}" if self.reason else text


@dataclass(frozen=True)
class VersionRecord(dataset.Document):
    """The contents of `version.json`.

    Attributes:
      version: Name of the version.
      state: State of the version.
      created: Start time in seconds since the epoch.
      finished: Time at which it was refused, or the pointer was switched to it; 0 before.
      previous: Version that it was built from; empty for the first.
      fingerprint: Fingerprint of its `dataset.json`; empty until that exists.
      records: Number of records in all splits.
      total_bytes: Total size of its shards.
      classes: Number of classes.
      findings: Finding code -> number of findings in its validation.
      work: Counts of the work: shards, reused_shards, converted, copied (records), quarantined.
      changes: Kind -> number of images that changed since the previous version (`schemas/drift.py`).
      refusals: Violations that its gates found.
      accepted: Refusals that somebody accepted, by gate or name.
      acceptances: The decisions to accept them.
      holder: Random name of the run that built it, as in its lease.
      files: File -> sha256 for the files written with it: `diff.json` and `_checks/sha256.json`.
      pinned: Whether retention keeps it in any case. `pinned.json` decides this; it is not stored here.
      problem: Why its `version.json` cannot be used; empty if it can. It is not stored.
    """

    has_digest = True

    version: str
    state: VersionState
    created: float
    finished: float = 0.0
    previous: str = ""
    fingerprint: str = ""
    records: int = 0
    total_bytes: int = 0
    classes: int = 0
    findings: Mapping[str, int] = field(default_factory=dict)
    work: Mapping[str, int] = field(default_factory=dict)
    changes: Mapping[str, int] = field(default_factory=dict)
    refusals: tuple[Violation, ...] = ()
    accepted: tuple[str, ...] = ()
    acceptances: tuple[Acceptance, ...] = ()
    holder: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    pinned: bool = False
    problem: str = ""

    @property
    def is_unseen(self) -> bool:
        """Whether it passed its gates, but reached readers only if the pointer names it."""
        return self.state is VersionState.PUBLISHED and not self.finished

    @property
    def errors(self) -> list[Violation]:
        """The violations that refuse it unless somebody accepts them."""
        return [refusal for refusal in self.refusals if refusal.severity is Severity.ERROR]

    def as_json(self) -> dict[str, Any]:
        """Returns the fields as they are stored."""
        return {name: value for name, value in fields_json(self).items() if name not in ("pinned", "problem")}

    @classmethod
    def loads(cls, data: bytes) -> Self:
        """Reads a stored document.

        Raises:
          ValueError: If this version of the software cannot read it, or its digest is wrong.
        """
        record = super().loads(data)
        if record.state is VersionState.DAMAGED:
            raise ValueError("its state is not one that is stored")
        return record


@dataclass(frozen=True)
class Pointer(dataset.Document):
    """The contents of `latest.json`: the version that readers get.

    Attributes:
      version: Name of the version.
      fingerprint: Fingerprint of its `dataset.json`.
      published: Time at which the pointer was switched, in seconds since the epoch.
      previous: Version to which a rollback goes by default; empty for none. Usually it is the version that
        readers got before. After a rollback it is the version itself, so that a repeated rollback, for
        example after an error, goes no further back.
    """

    version: str
    fingerprint: str
    published: float
    previous: str = ""

    @classmethod
    def loads(cls, data: bytes) -> Self:
        """Reads a stored document.

        Raises:
          ValueError: If this version of the software cannot read it.
        """
        pointer = super().loads(data)
        if not is_version(pointer.version):
            raise ValueError(f"{pointer.version!r} is not a version")
        return pointer


def is_version(name: str) -> bool:
    """Returns whether a name is a name of a version, such as `20261121T020000Z`."""
    return bool(_VERSION.fullmatch(name))


def next_version(now: float, existing: Iterable[str]) -> str:
    """Returns the name of a new version: the time in UTC, or a second after the newest version if later.

    Args:
      now: Seconds since the epoch.
      existing: Names of all versions.

    Raises:
      UsageError: If the newest version is named after the last possible time.
    """
    newest = max(filter(is_version, existing), default="")
    earliest = int(created_at(newest)) + 1 if newest else 0
    name = time.strftime(_TIME_FORMAT, time.gmtime(max(int(now), earliest)))
    if not is_version(name) or name <= newest:
        raise UsageError(
            f"Version {newest} is named after a time that no version can follow; rename or remove its "
            "directory."
        )
    return name


def split_version(path: str) -> tuple[str, str]:
    """Splits a path at its last `@` into the path and the version; the version is empty if there is none."""
    base, at, version = path.rstrip("/").rpartition("@")
    return (base, version) if at and base and is_version(version) else (path, "")


def path_advice(path: str) -> str:
    """Returns what to do about a path that does not exist: it may end with a wrong name of a version."""
    base, at, version = path.rpartition("@")
    if not (at and base):
        return "check the path"
    return (
        f"if {printable(version)!r} is meant as a version, write a name such as 20261121T020000Z, which "
        f"shardwright versions {printable(base)} lists"
    )


def created_at(name: str) -> float:
    """Returns the time in a version's name, in seconds since the epoch; 0 if the time is invalid."""
    try:
        return float(calendar.timegm(time.strptime(name, _TIME_FORMAT)))
    except ValueError:
        return 0.0


def time_text(seconds: float) -> str:
    """Returns a time in the form that people read, with its zone, UTC; empty if the time is invalid."""
    try:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):
        return ""


def version_name(directory: str) -> str:
    """Returns `OUT@V` for the dataset directory of a version; other paths stay unchanged."""
    output, slash, folder = directory.rstrip("/").rpartition(f"/{VERSIONS_DIR}/")
    return f"{output}@{folder}" if slash and is_version(folder) else directory


def check_file(shard: str) -> str:
    """Returns the path of the findings in a shard, inside the directory of a version."""
    return f"{CHECKS_DIR}/{shard}.json.gz"


def pin_text(when: float) -> str:
    """Returns the text of `pinned.json`; `when` is in seconds since the epoch."""
    return dataset.pretty_json(dataset.with_digest({"pinned": round(when, 3)}))


def is_pin(data: bytes) -> bool:
    """Returns whether `pinned.json` matches its digest."""
    value = json_object(data, dataset.strict_json)
    return value.keys() == {"pinned", dataset.DIGEST} and dataset.has_own_digest(value)


def version_path(output: str, version: str) -> str:
    """Returns the dataset directory of a version."""
    return f"{output.rstrip('/')}/{VERSIONS_DIR}/{version}"


#: Path of the document, relative to the directory that contains the versions.
INPUT_JSON = f"{dataset.WORK_DIR}/input.json"


@dataclass(frozen=True)
class InputState(dataset.Document):
    """The input of the latest version, by which a rebuild detects that nothing has changed.

    With the same request and listing, there is nothing to rebuild.

    Attributes:
      version: Version that was made of this input, or that this input would not change.
      fingerprint: Fingerprint of that version.
      request: Digest of everything besides the listing that decides what is made: settings, lists of names,
        software.
      listing: Digest of all references of the input (`ListingDigest.text`).
      images: Number of images to convert.
      classes: Number of classes.
      planned: Number of planned shards, with one for files without a key.
      shards: Split -> number of shards.
      tree: Description of the input (`Forecast.tree`).
      splits_from: Whether the source names the splits (`SplitsFrom`).
      checked: Start of the run that compared the input with this version, in seconds since the epoch.
    """

    has_digest = True

    version: str
    fingerprint: str
    request: str
    listing: str
    images: int
    classes: int
    planned: int
    shards: Mapping[str, int]
    tree: str
    splits_from: str
    checked: float


#: Maximum number of damaged shards that a sentence names.
MAX_NAMED_SHARDS = 3
#: Number of digits of a shard's sha256 that identify the shard.
_DIGITS = 16
#: Tolerance for rounding: 0.07 of 100 shards are 7, although the product is slightly larger.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class ScrubState(dataset.Document):
    """The contents of `scrub.json`: when runs read the shards of the latest version again.

    The rotation counts runs, so it does not depend on a clock: the shards that were read longest ago come
    first. A shard that was written since the last run counts as read then, because it was verified when it
    was written.

    Attributes:
      run: Number of runs that have read shards again.
      shards: File -> the first digits of the shard's sha256, and the number of the run that read it last; 0
        for a shard that no run has read or that was damaged.
    """

    run: int = 0
    shards: Mapping[str, tuple[str, int]] = field(default_factory=dict)


def choose_shards(shards: Sequence[dataset.Shard], state: ScrubState, fraction: float) -> list[dataset.Shard]:
    """Returns the shards to read now, in the order of the dataset: those that were read longest ago.

    Args:
      shards: All shards of the latest version.
      state: The runs that last read each shard.
      fraction: Share of the shards to read, from 0 to 1. Above 0 this is at least one shard.
    """
    count = min(len(shards), math.ceil(len(shards) * fraction - _ROUNDING))
    oldest_first = sorted(range(len(shards)), key=lambda i: (_last_read(shards[i], state), i))
    return [shards[i] for i in sorted(oldest_first[: max(count, 0)])]


def state_after(shards: Sequence[dataset.Shard], state: ScrubState, intact: Mapping[str, bool]) -> ScrubState:
    """Returns the state after a run.

    Args:
      shards: All shards of the version that the run read.
      state: State before the run.
      intact: File that the run read -> whether it is undamaged. Damaged files are read again first, in case
        their repair is refused.
    """
    run = state.run + 1
    last: dict[str, tuple[str, int]] = {}
    for shard in shards:
        when = _last_read(shard, state)
        if shard.file in intact:
            when = run if intact[shard.file] else 0
        last[shard.file] = shard.sha256[:_DIGITS], when
    return ScrubState(run, last)


def _last_read(shard: dataset.Shard, state: ScrubState) -> int:
    digest, run = state.shards.get(shard.file, ("", 0))
    return run if digest == shard.sha256[:_DIGITS] else state.run


def scrub_text(facts: Mapping[str, Any]) -> str:
    """Returns one line: how much was read again, and how much of it was damaged.

    Args:
      facts: `version`, `shards`, `of_shards`, `bytes`, `of_bytes`, and the `damaged` files.
    """
    share = f"{format_size(facts['bytes'])} of {format_size(facts['of_bytes'])}"
    read = f"{facts['shards']:,} of {counted(facts['of_shards'], 'shard')} of {facts['version']} read again"
    damaged = facts["damaged"]
    named = listed(damaged, MAX_NAMED_SHARDS)
    damage = f"{len(damaged):,} damaged: {named}" if damaged else "none is damaged"
    return f"{read} ({share}), {damage}"
