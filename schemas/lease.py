"""The lease of a rebuild: who works on a dataset now, and until when that counts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Lease:
    """The contents of `lease.json`.

    Attributes:
      holder: made up anew for each run; what tells one from another.
      version: that the run makes.
      host: where its launcher runs.
      pid: of the launcher.
      began: when that process began, as its system says it; tells a pid from its next owner.
      renewed: when the holder last said that it works, in seconds since the epoch.
      seconds: for how long that counts.
    """

    holder: str
    version: str
    host: str = ""
    pid: int = 0
    began: str = ""
    renewed: float = 0.0
    seconds: float = 3600.0

    def dumps(self) -> str:
        """Returns the document as it is stored."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @staticmethod
    def loads(data: bytes) -> Lease:
        """Reads a stored document.

        Raises:
          ValueError: if it is none.
        """
        try:
            return Lease(**json.loads(data))
        except (TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"it is damaged ({error!r})") from error
