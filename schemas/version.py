"""The versions of a dataset: their names, what `version.json` says of one, and the pointer to the latest."""

from __future__ import annotations

import calendar
import contextlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple

from shardwright.schemas.dataset import DIGEST, has_own_digest, pretty_json, with_digest
from shardwright.schemas.errors import UsageError
from shardwright.schemas.violation import Violation

FORMAT_VERSION = 1
VERSIONS_DIR = "versions"
LATEST_JSON = "latest.json"
LEASE_JSON = "lease.json"
INDEX_HTML = "index.html"
METRICS_PROM = "metrics.prom"
SCRUB_JSON = "scrub.json"
#: Inside the directory of a version, beside what every dataset has.
VERSION_JSON = "version.json"
DIFF_JSON = "diff.json"
PINNED_JSON = "pinned.json"
CHECKS_DIR = "_checks"
#: Says the sha256 of each other file in `_checks/`.
CHECK_LIST = f"{CHECKS_DIR}/sha256.json"

_TYPES: Mapping[str, Any] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "Mapping[str, int]": dict,
    "Mapping[str, str]": dict,
}
#: What the values of a mapping have to be.
_VALUE_TYPES: Mapping[str, type] = {"Mapping[str, int]": int, "Mapping[str, str]": str}
_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_VERSION = re.compile(r"[0-9]{8}T[0-9]{6}Z")


class VersionState(StrEnum):
    """How far a version came."""

    BUILDING = "building"
    REFUSED = "refused"  # complete, and a gate did not let it pass
    PUBLISHED = "published"
    WITHDRAWN = "withdrawn"  # was published, and rolled back
    DAMAGED = "damaged"  # its version.json cannot be read; never stored


class Acceptance(NamedTuple):
    """Somebody's decision to publish a version that a gate refused.

    Attributes:
      names: refusals that were accepted, by their names or their gates.
      who: the account and the machine, such as `ana@trainer`.
      when: in seconds since the epoch.
      reason: why, in that person's words; empty if nothing was said.
    """

    names: tuple[str, ...]
    who: str
    when: float
    reason: str = ""

    def __str__(self) -> str:
        """Returns the decision in one line."""
        moment = time_text(self.when)
        said = f"{', '.join(self.names)} accepted by {self.who}" + (f", {moment} UTC" if moment else "")
        return f"{said}: {self.reason}" if self.reason else said

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Acceptance:
        """Reads a stored decision."""
        names = tuple(map(str, value["names"]))
        return Acceptance(names, str(value["who"]), float(value["when"]), str(value["reason"]))


@dataclass(frozen=True)
class VersionRecord:
    """The contents of `version.json`.

    Attributes:
      version: its name.
      state: how far it came.
      created: when it was begun, in seconds since the epoch.
      finished: when it was refused, or the pointer was switched to it; 0 before.
      previous: the version that it was made from; empty for the first.
      fingerprint: of its `dataset.json`; empty before that.
      records: in all splits.
      total_bytes: of all shards.
      classes: how many it has.
      findings: of its validation, how many of each code.
      work: what was done for it: shards, reused_shards, converted, copied (records), quarantined.
      changes: kind -> images, against the version before (`schemas/changes.py`).
      refusals: what the gates said.
      accepted: refusals that somebody let pass, by gate or name.
      acceptances: who let them pass, when and why.
      holder: what tells the run that made it from any other, as in its lease.
      files: file -> sha256 of the files that were written with it, `diff.json` and `_checks/sha256.json`.
      pinned: whether it stays whatever retention says; told by `pinned.json`, and not stored here.
      problem: why its `version.json` cannot be used; empty for one that can, and not stored.
    """

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
        """Whether it passed its gates and nobody knows of readers who got it, unless the pointer names it."""
        return self.state is VersionState.PUBLISHED and not self.finished

    def dumps(self) -> str:
        """Returns the document as it is stored."""
        refusals = [refusal.as_json() for refusal in self.refusals]
        document = {"format_version": FORMAT_VERSION, **asdict(self), "refusals": refusals}
        del document["pinned"], document["problem"], document["acceptances"]
        if self.acceptances:
            document["acceptances"] = [item._asdict() for item in self.acceptances]
        return json.dumps(with_digest(document), indent=2, ensure_ascii=False) + "\n"

    @staticmethod
    def loads(data: bytes) -> VersionRecord:
        """Reads a stored document; those of older versions of the software have no digest.

        Raises:
          ValueError: if it is none that this version of the software reads, or its digest is wrong.
        """
        with _damaged():
            value = _document(data)
            value["state"] = VersionState(value["state"])
            if value["state"] is VersionState.DAMAGED:
                raise ValueError("its state is none that is stored")
            value["refusals"] = tuple(map(Violation.from_json, value["refusals"]))
            value["accepted"] = tuple(map(str, value["accepted"]))
            value["acceptances"] = tuple(map(Acceptance.from_json, value.get("acceptances", ())))
            record = VersionRecord(**value)
            _check_types(record)
        return record


@dataclass(frozen=True)
class Pointer:
    """The contents of `latest.json`: which version readers get.

    Attributes:
      version: its name.
      fingerprint: of its `dataset.json`.
      published: when the pointer was switched, in seconds since the epoch.
      previous: the version that a rollback goes to unless it names one: mostly the one that readers got
        before. After a rollback it is the version itself, so that a rollback that is repeated, after an
        error for example, goes no further back. Empty for none.
    """

    version: str
    fingerprint: str
    published: float
    previous: str = ""

    def dumps(self) -> str:
        """Returns the document as it is stored."""
        return json.dumps({"format_version": FORMAT_VERSION, **asdict(self)}, indent=2) + "\n"

    @staticmethod
    def loads(data: bytes) -> Pointer:
        """Reads a stored document.

        Raises:
          ValueError: if it is none that this version of the software reads.
        """
        with _damaged():
            pointer = Pointer(**_document(data))
            _check_types(pointer)
        if not is_version(pointer.version):
            raise ValueError(f"{pointer.version!r} is no version")
        return pointer


@contextlib.contextmanager
def _damaged() -> Iterator[None]:
    """Turns whatever reading a document of another kind raises into one error."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is damaged ({error!r})") from error


def _document(data: bytes) -> dict[str, Any]:
    """Returns the values of a stored document of this format."""
    value = dict(json.loads(data))
    if not has_own_digest(value):
        raise ValueError(f"its fields are not those that its field {DIGEST!r} was made of")
    value.pop(DIGEST, None)
    if value.pop("format_version") != FORMAT_VERSION:
        raise ValueError("it is of another format_version")
    return value


def _check_types(document: VersionRecord | Pointer) -> None:
    """Checks that values have the types that are declared, as far as somebody counts on them."""
    for item in fields(document):
        value, wanted = getattr(document, item.name), _TYPES.get(str(item.type))
        values, kind = value.values() if isinstance(value, dict) else (), _VALUE_TYPES.get(str(item.type))
        if (wanted and not isinstance(value, wanted)) or (
            kind and not all(isinstance(v, kind) for v in values)
        ):
            raise ValueError(f"its {item.name} is {value!r:.80}")


def is_version(name: str) -> bool:
    """Whether a name is that of a version, such as `20261121T020000Z`."""
    return bool(_VERSION.fullmatch(name))


def next_version(now: float, existing: Iterable[str]) -> str:
    """Returns the name of a new version: the time in UTC, or a second after the newest one if that is later.

    Args:
      now: seconds since the epoch.
      existing: names of all versions there are.

    Raises:
      UsageError: if the newest one is called after a time that none can follow.
    """
    newest = max(filter(is_version, existing), default="")
    earliest = int(created_at(newest)) + 1 if newest else 0
    made = time.strftime(_TIME_FORMAT, time.gmtime(max(int(now), earliest)))
    if not is_version(made) or made <= newest:
        raise UsageError(
            f"Version {newest} is called after a time that none can follow; rename or remove its directory."
        )
    return made


def split_version(path: str) -> tuple[str, str]:
    """Returns a path without the version behind its last `@`, and that version; empty without one."""
    base, at, version = path.rstrip("/").rpartition("@")
    return (base, version) if at and base and is_version(version) else (path, "")


def created_at(name: str) -> float:
    """Returns when a version was begun by its name, in seconds since the epoch; 0 for a time that is none."""
    try:
        return float(calendar.timegm(time.strptime(name, _TIME_FORMAT)))
    except ValueError:
        return 0.0


def time_text(seconds: float) -> str:
    """Returns a time in UTC as people write it; empty for one that no clock shows."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):
        return ""


def version_name(directory: str) -> str:
    """Returns `OUT@V` for the dataset directory of a version; any other one as it is."""
    output, slash, folder = directory.rstrip("/").rpartition(f"/{VERSIONS_DIR}/")
    return f"{output}@{folder}" if slash and is_version(folder) else directory


def check_file(shard: str) -> str:
    """Returns where it stands, inside the directory of a version, what was found in a shard."""
    return f"{CHECKS_DIR}/{shard}.json.gz"


def pin_text(when: float) -> str:
    """Returns the text of `pinned.json`; `when` is in seconds since the epoch."""
    return pretty_json(with_digest({"pinned": round(when, 3)}))


def is_pin(data: bytes) -> bool:
    """Whether `pinned.json` is as it was written; older software wrote it without a digest."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.keys() | {DIGEST} == {"pinned", DIGEST} and has_own_digest(value)


def version_path(output: str, version: str) -> str:
    """Returns the dataset directory of a version."""
    return f"{output.rstrip('/')}/{VERSIONS_DIR}/{version}"
