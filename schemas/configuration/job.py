"""The content of a rebuild's job file, as dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardwright.schemas.configuration.expectations import Expectations
from shardwright.schemas.configuration.settings import RebuildSettings
from shardwright.schemas.configuration.thresholds import Thresholds
from shardwright.schemas.findings import Gates
from shardwright.schemas.version import DEFAULT_SCRUB

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
        limit = self.limits.max_bad_fraction
        return self.expectations.model_copy(update={} if limit is None else {"max_bad_fraction": limit})


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
