"""The versions of a dataset: their names, what `version.json` says of one, and the pointer to the latest."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from shardwright.schemas.codes import Severity

FORMAT_VERSION = 1
VERSIONS_DIR = "versions"
LATEST_JSON = "latest.json"
LEASE_JSON = "lease.json"
INDEX_HTML = "index.html"
METRICS_PROM = "metrics.prom"
#: Inside the directory of a version, beside what every dataset has.
VERSION_JSON = "version.json"
DIFF_JSON = "diff.json"
PINNED_JSON = "pinned.json"
CHECKS_DIR = "_checks"

_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_VERSION = re.compile(r"\d{8}T\d{6}Z")


class VersionState(StrEnum):
    """How far a version came."""

    BUILDING = "building"
    REFUSED = "refused"  # complete, and a gate did not let it pass
    PUBLISHED = "published"
    WITHDRAWN = "withdrawn"  # was published, and rolled back


class GateRefusal(NamedTuple):
    """Something that a gate did not let pass, or warns of.

    Attributes:
      gate: which one: `findings`, `drift`, `bad_images` or `rolled_back`.
      name: of the limit or the code.
      severity: an error refuses the version, a warning does not.
      message: one line.
    """

    gate: str
    name: str
    severity: Severity
    message: str

    def as_json(self) -> dict[str, Any]:
        """Returns the refusal as `version.json` stores it."""
        return self._asdict()

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> GateRefusal:
        """Reads a stored refusal."""
        return GateRefusal(value["gate"], value["name"], Severity(value["severity"]), value["message"])


@dataclass(frozen=True)
class VersionRecord:
    """The contents of `version.json`.

    Attributes:
      version: its name.
      state: how far it came.
      created: when it was begun, in seconds since the epoch.
      finished: when it was published or refused; 0 before.
      previous: the version that it was made from; empty for the first.
      fingerprint: of its `dataset.json`; empty before that.
      records: in all splits.
      total_bytes: of all shards.
      work: what was done for it: shards, reused_shards, converted, copied (records), quarantined.
      changes: kind -> images, against the version before (`schemas/changes.py`).
      refusals: what the gates said.
      accepted: refusals that somebody let pass, by gate or name.
    """

    version: str
    state: VersionState
    created: float
    finished: float = 0.0
    previous: str = ""
    fingerprint: str = ""
    records: int = 0
    total_bytes: int = 0
    work: Mapping[str, int] = field(default_factory=dict)
    changes: Mapping[str, int] = field(default_factory=dict)
    refusals: tuple[GateRefusal, ...] = ()
    accepted: tuple[str, ...] = ()

    def dumps(self) -> str:
        """Returns the document as it is stored."""
        refusals = [refusal.as_json() for refusal in self.refusals]
        document = {"format_version": FORMAT_VERSION, **asdict(self), "refusals": refusals}
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"

    @staticmethod
    def loads(data: bytes) -> VersionRecord:
        """Reads a stored document.

        Raises:
          ValueError: if it is none that this version of the software reads.
        """
        try:
            value = dict(json.loads(data))
            if value.pop("format_version") != FORMAT_VERSION:
                raise ValueError("it is of another format_version")
            value["state"] = VersionState(value["state"])
            value["refusals"] = tuple(map(GateRefusal.from_json, value["refusals"]))
            value["accepted"] = tuple(value["accepted"])
            return VersionRecord(**value)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"it is damaged ({error!r})") from error


@dataclass(frozen=True)
class Pointer:
    """The contents of `latest.json`: which version readers get.

    Attributes:
      version: its name.
      fingerprint: of its `dataset.json`.
      published: when the pointer was switched, in seconds since the epoch.
      previous: the version that it pointed to before; empty for the first.
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
        try:
            value = dict(json.loads(data))
            if value.pop("format_version") != FORMAT_VERSION:
                raise ValueError("it is of another format_version")
            pointer = Pointer(**value)
            if not is_version(pointer.version):
                raise ValueError(f"{pointer.version!r} is no version")
            return pointer
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"it is damaged ({error!r})") from error


def is_version(name: str) -> bool:
    """Whether a name is that of a version, such as `20261121T020000Z`."""
    return bool(_VERSION.fullmatch(name))


def next_version(now: float, existing: Iterable[str]) -> str:
    """Returns the name of a new version: the time in UTC, or a second after the newest one if that is later.

    Args:
      now: seconds since the epoch.
      existing: names of all versions there are.
    """
    wanted = int(now)
    for name in filter(is_version, existing):
        wanted = max(wanted, _seconds_of(name) + 1)
    return time.strftime(_TIME_FORMAT, time.gmtime(wanted))


def _seconds_of(name: str) -> int:
    import calendar

    return calendar.timegm(time.strptime(name, _TIME_FORMAT))


def split_version(path: str) -> tuple[str, str]:
    """Returns a path without the version behind its last `@`, and that version; empty without one."""
    base, at, version = path.rstrip("/").rpartition("@")
    return (base, version) if at and base and is_version(version) else (path, "")


def version_path(output: str, version: str) -> str:
    """Returns the dataset directory of a version."""
    return f"{output.rstrip('/')}/{VERSIONS_DIR}/{version}"
