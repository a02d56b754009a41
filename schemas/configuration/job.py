"""The content of a rebuild's job file, as dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shardwright.schemas.configuration import kinds
from shardwright.schemas.configuration.expectations import Expectations
from shardwright.schemas.configuration.setting import Affects, Setting, Topic, setting, settings_of
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.configuration.thresholds import Thresholds
from shardwright.schemas.findings import Gates
from shardwright.schemas.scrub import DEFAULT_SCRUB

#: Events that a hook can be called for; `on_any` in a file means all of them.
EVENTS = ("success", "no_change", "refused", "failure")


@dataclass(frozen=True)
class JobGates:
    """The content of a gate file: the checks that a dataset or a new version has to pass.

    Attributes:
      findings: Which findings of the validation are errors.
      expectations: Requirements of the dataset.
      limits: Limits on how it may differ from the previous dataset.
    """

    findings: Gates = field(default_factory=Gates)
    expectations: Expectations = field(default_factory=Expectations)
    limits: Thresholds = field(default_factory=Thresholds)

    @property
    def alone(self) -> Expectations:
        """The gates that can be checked without another dataset."""
        return replace(
            self.expectations,
            max_bad_fraction=self.expectations.max_bad_fraction
            if self.limits.max_bad_fraction is None
            else self.limits.max_bad_fraction,
        )


@dataclass(frozen=True)
class RebuildSettings:
    """The settings that only a rebuild has."""

    keep: int = setting(5, Affects.RUN, Topic.RUNNING, kinds.VERSIONS)
    """Number of published versions to keep, 0 for all; the latest version and pinned versions always stay."""
    keep_days: float = setting(0.0, Affects.RUN, Topic.RUNNING, kinds.DAYS)
    """Younger versions also stay, in days."""
    verify_sources: bool = setting(False, Affects.RUN, Topic.RUNNING, kinds.SWITCH)
    """Read and hash every source instead of trusting its size and time."""
    scrub: float = setting(DEFAULT_SCRUB, Affects.RUN, Topic.RUNNING, kinds.PART)
    """Share of the latest version's shards to read again, such as 0.1, or 1 for all; damaged shards are
    rebuilt from the source (default: 1/30, which reads all within 30 nights)."""
    lease_minutes: float = setting(60.0, Affects.RUN, Topic.RUNNING, kinds.MINUTES)
    """Minutes without a sign of life after which another run takes over."""


def rebuild_fields() -> Mapping[str, Setting]:
    """Returns the settings of a rebuild by name: those of a conversion, and its own."""
    return {**settings_of(ConvertSettings), **settings_of(RebuildSettings)}


@dataclass(frozen=True)
class Hook:
    """A command or URL to call at the end of a run. It may contain secrets, so its `repr` does not show it.

    Attributes:
      command: Command with its arguments; empty for none.
      webhook: URL that receives a JSON document; empty for none.
    """

    command: tuple[str, ...] = field(default=(), repr=False)
    webhook: str = field(default="", repr=False)


@dataclass(frozen=True)
class JobFile:
    """The content of a job file.

    Attributes:
      settings: The given settings of the conversion, by name; `verify` is chosen so that the gates can be
        checked.
      gates: Checks that a new version has to pass.
      rules: The settings that only a rebuild has.
      hooks: Event (success, no_change, refused, failure) -> hooks to call.
      beam: Options for Beam, as on a command line.
      path: Path of the file.
      lines: Setting, or `runner.` and the name of a Beam option -> its line in the file.
    """

    settings: Mapping[str, Any]
    gates: JobGates = field(default_factory=JobGates)
    rules: RebuildSettings = field(default_factory=RebuildSettings)
    hooks: Mapping[str, tuple[Hook, ...]] = field(default_factory=dict)
    beam: tuple[str, ...] = field(default=(), repr=False)
    path: str = ""
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
