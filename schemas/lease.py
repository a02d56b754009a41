"""A lease: which run writes to an output now, and how long its lease is valid."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from shardwright.schemas.json_values import from_json

#: Maximum duration of a lease (14 days), so that a damaged one does not block an output for ever.
MAX_SECONDS = 14 * 86_400.0


@dataclass(frozen=True)
class Lease:
    """The contents of a `lease.json`.

    Attributes:
      holder: Random name of a run, which tells runs apart.
      version: Name of the version that a rebuild makes; empty for a conversion or salvage.
      host: Machine of the run's launcher.
      pid: Process id of the launcher; 0 if the job continues without it, so that its end means nothing.
      began: Start of that process as its system reports it, because a pid may be used again.
      since: When the holder got the lease, in seconds since the epoch.
      renewed: When the holder last renewed the lease, in seconds since the epoch.
      seconds: Duration of the lease after a renewal.
    """

    holder: str
    version: str
    host: str = ""
    pid: int = 0
    began: str = ""
    since: float = 0.0
    renewed: float = 0.0
    seconds: float = 3600.0

    def dumps(self) -> str:
        """Returns the document as it is stored."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @staticmethod
    def loads(data: bytes) -> Lease:
        """Reads a stored document; fields that a later version of the software added are ignored.

        Its `seconds` are at most `MAX_SECONDS`.

        Raises:
          ValueError: If it is not a lease.
        """
        try:
            lease = from_json(Lease, json.loads(data))
        except (TypeError, RecursionError) as error:
            raise ValueError(f"it is damaged ({error!r})") from error
        return replace(lease, seconds=min(lease.seconds, MAX_SECONDS))


def is_void(lease: Lease, age: float, host: str, is_alive: Callable[[int, str], bool]) -> bool:
    """Returns whether a lease no longer keeps other runs away.

    A lease that is not renewed ends after its duration. A lease from the far future was written while the
    storage's clock was wrong. On the holder's own machine, the end of its process ends the lease at once.

    Args:
      lease: The stored lease.
      age: Seconds since it was stored, by the storage's own clock, because clocks of machines differ.
      host: Name of this machine.
      is_alive: Returns whether the process with this pid and start may still run on this machine.
    """
    if not abs(age) <= lease.seconds:
        return True
    return lease.pid > 0 and lease.host == host and not is_alive(lease.pid, lease.began)
