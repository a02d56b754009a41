"""A lease: who writes to an output now, and until when that counts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace

#: A stored lease counts for 14 days at most, so that a damaged one blocks nobody for ever.
MOST_SECONDS = 14 * 86_400.0


@dataclass(frozen=True)
class Lease:
    """The contents of a `lease.json`.

    Attributes:
      holder: made up anew for each run; what tells one from another.
      version: that a rebuild makes; empty for a conversion or salvage.
      host: where its launcher runs.
      pid: of the launcher; 0 when the job goes on without it, so that its end says nothing.
      began: when that process began, as its system says it; tells a pid from its next owner.
      since: when the holder got the lease, in seconds since the epoch.
      renewed: when the holder last said that it works, in seconds since the epoch.
      seconds: for how long that counts.
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
        """Reads a stored document; what a later version of the software adds to it is passed over.

        Its `seconds` are at most `MOST_SECONDS`.

        Raises:
          ValueError: if it is none.
        """
        try:
            value = json.loads(data)
            lease = Lease(**{field.name: value[field.name] for field in fields(Lease) if field.name in value})
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"it is damaged ({error!r})") from error
        for field in fields(Lease):
            stored, kind = getattr(lease, field.name), type(field.default)
            if not (_is_number(stored, kind) if kind in (int, float) else isinstance(stored, str)):
                raise ValueError(f"it is damaged ({field.name} is {stored!r})")
        return replace(lease, seconds=min(lease.seconds, MOST_SECONDS))


def _is_number(value: object, kind: type) -> bool:
    allowed = (int,) if kind is int else (int, float)
    return isinstance(value, allowed) and not isinstance(value, bool) and math.isfinite(value)


def is_void(lease: Lease, age: float, host: str, is_alive: Callable[[int, str], bool]) -> bool:
    """Whether a lease keeps nobody away any more.

    A silent holder's lease ends with its time. A lease from the far future was written while the storage's
    clock was wrong. On the holder's own machine the end of its process is seen at once.

    Args:
      lease: as it is stored.
      age: seconds since it was stored, by the storage's own clock: those of machines may differ.
      host: the machine that asks.
      is_alive: whether the process with a pid and a beginning may still run on this machine.
    """
    if not abs(age) <= lease.seconds:
        return True
    return lease.pid > 0 and lease.host == host and not is_alive(lease.pid, lease.began)
