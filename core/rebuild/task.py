"""Description of a rebuild for its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardwright.core.lease import HeldLease
from shardwright.schemas.configuration.job import Hook, JobGates, RebuildSettings
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.lease import Lease
from shardwright.schemas.version import version_path


@dataclass(frozen=True)
class RebuildTask:
    """A rebuild. The description travels with the job.

    Attributes:
      output: Directory that contains the versions.
      version: Version to build.
      holder: Holder of the lease, an identifier that the launcher made up.
      settings: Checked settings of the conversion.
      versions: Software versions that affect bytes.
      gates: Gates that the version has to pass.
      hooks: Mapping of event to its hooks.
      rules: The settings that only a rebuild has.
      wait_seconds: Seconds to wait for another rebuild to finish.
      host: Host on which the launcher runs.
      pid: Process id of the launcher. 0 if it does not wait for the job.
      began: Start of the launcher's process, as its system states it.
      run: Values for `run.json`.
      started: Start of the run, in seconds since the epoch.
      log_format: Format of the log lines of stages, text or json.
      request: Digest of everything besides the listing that decides what is made. Empty if the state of the
        input is not to be stored, because something else decides too.
    """

    output: str
    version: str
    holder: str
    settings: ConvertSettings
    versions: Mapping[str, str]
    gates: JobGates = field(default_factory=JobGates)
    hooks: Mapping[str, tuple[Hook, ...]] = field(default_factory=dict)
    rules: RebuildSettings = field(default_factory=RebuildSettings)
    wait_seconds: float = 0.0
    host: str = ""
    pid: int = 0
    began: str = ""
    run: Mapping[str, Any] = field(default_factory=dict)
    started: float = 0.0
    log_format: str = "text"
    request: str = ""

    @property
    def hold(self) -> HeldLease:
        """The lease of the rebuild."""
        seconds = 60 * self.rules.lease_minutes
        lease = Lease(self.holder, self.version, self.host, self.pid, self.began, seconds=seconds)
        return HeldLease(self.output, lease)

    @property
    def directory(self) -> str:
        """The dataset directory of the version."""
        return version_path(self.output, self.version)
