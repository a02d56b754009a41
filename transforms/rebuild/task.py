"""What the steps of a rebuild are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shardwright.schemas.job import Hook, JobGates, Retention
from shardwright.schemas.lease import Lease
from shardwright.schemas.settings import ConvertSettings
from shardwright.schemas.version import version_path
from shardwright.transforms.lease import HeldLease


@dataclass(frozen=True)
class RebuildTask:
    """A rebuild, described; it travels with the job's description.

    Attributes:
      output: the directory that holds the versions.
      version: the one to make.
      holder: of the lease, made up by the launcher.
      settings: checked settings of the conversion.
      versions: the software versions that decide bytes.
      gates: what the version has to pass.
      retention: which versions stay.
      hooks: event -> whom to tell.
      verify_sources: read and hash every source instead of trusting its size and state.
      scrub: share of the latest version's shards to read again, from 0 to 1.
      lease_seconds: after which a silent holder's lease is void.
      wait_seconds: how long another rebuild's end is waited for.
      host: where the launcher runs.
      pid: of the launcher; 0 when it does not wait for the job's end.
      began: when the launcher's process began, as its system says it.
      run: what `run.json` says of the run.
      started: seconds since the epoch.
      log_format: of the line that each stage logs: text or json.
    """

    output: str
    version: str
    holder: str
    settings: ConvertSettings
    versions: Mapping[str, str]
    gates: JobGates = field(default_factory=JobGates)
    retention: Retention = field(default_factory=Retention)
    hooks: Mapping[str, tuple[Hook, ...]] = field(default_factory=dict)
    verify_sources: bool = False
    scrub: float = 0.0
    lease_seconds: float = 3600.0
    wait_seconds: float = 0.0
    host: str = ""
    pid: int = 0
    began: str = ""
    run: Mapping[str, Any] = field(default_factory=dict)
    started: float = 0.0
    log_format: str = "text"

    @property
    def hold(self) -> HeldLease:
        """The lease of the rebuild."""
        lease = Lease(self.holder, self.version, self.host, self.pid, self.began, seconds=self.lease_seconds)
        return HeldLease(self.output, lease)

    @property
    def directory(self) -> str:
        """The dataset directory of the version."""
        return version_path(self.output, self.version)
