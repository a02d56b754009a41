"""The job file of a rebuild: what it says, as dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shardwright.schemas.configuration.expectations import Expectations
from shardwright.schemas.configuration.thresholds import Thresholds
from shardwright.schemas.findings import Gates
from shardwright.schemas.scrub import DEFAULT_SCRUB

#: What a hook can be told of; `on_any` in a file stands for all of them.
EVENTS = ("success", "no_change", "refused", "failure")


@dataclass(frozen=True)
class JobGates:
    """What a gate file says: what a dataset, or a new version, has to pass.

    Attributes:
      findings: which findings of the validation are errors.
      expectations: what the dataset must be like.
      limits: how far it may differ from the dataset before.
      notes: how to write what an older file says in another way.
    """

    findings: Gates = field(default_factory=Gates)
    expectations: Expectations = field(default_factory=Expectations)
    limits: Thresholds = field(default_factory=Thresholds)
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def alone(self) -> Expectations:
        """What can be checked without another dataset."""
        return replace(
            self.expectations,
            max_bad_fraction=self.expectations.max_bad_fraction
            if self.limits.max_bad_fraction is None
            else self.limits.max_bad_fraction,
        )


@dataclass(frozen=True)
class Retention:
    """Which versions stay; the latest one and pinned ones always do.

    Attributes:
      keep: how many published versions; 0 for all.
      keep_days: younger ones stay too; 0 for none on that account.
    """

    keep: int = 5
    keep_days: float = 0.0


@dataclass(frozen=True)
class Hook:
    """What is told of the end of a run; it may hold secrets, so that no `repr` shows it.

    Attributes:
      command: and its arguments; none for an empty one.
      webhook: a URL that gets a JSON document; none for an empty one.
    """

    command: tuple[str, ...] = field(default=(), repr=False)
    webhook: str = field(default="", repr=False)


@dataclass(frozen=True)
class JobFile:
    """What a rebuild is told.

    Attributes:
      settings: of the conversion, by name, those that were given; `verify` so that it answers the gates.
      gates: what a new version has to pass.
      retention: which versions stay.
      hooks: event (success, no_change, refused, failure) -> whom to tell.
      verify_sources: read and hash every source instead of trusting its size and state.
      scrub: share of the latest version's shards to read again in each run, from 0 to 1.
      lease_minutes: after which a silent holder's lease is void.
      beam: Beam's options, as on a command line.
      path: of the file.
      lines: setting, or `runner.` and the name of one of Beam's options, -> where it stands in the file.
    """

    settings: Mapping[str, Any]
    gates: JobGates = field(default_factory=JobGates)
    retention: Retention = field(default_factory=Retention)
    hooks: Mapping[str, tuple[Hook, ...]] = field(default_factory=dict)
    verify_sources: bool = False
    scrub: float = DEFAULT_SCRUB
    lease_minutes: float = 60.0
    beam: tuple[str, ...] = field(default=(), repr=False)
    path: str = ""
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
