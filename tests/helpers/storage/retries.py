"""How long operations of storages are retried in a test."""

from __future__ import annotations

from shardwright.core.storage import faults


class Retries:
    """How long operations are retried: as long as usual, or from some event on only for a moment."""

    def __init__(self) -> None:
        self._usual = faults.PATIENCE_SECONDS, faults.FIRST_PATIENCE_SECONDS

    def end_soon(self) -> None:
        """Ends all retries soon. What comes before this call has time, however busy the machine is."""
        faults.PATIENCE_SECONDS = faults.FIRST_PATIENCE_SECONDS = 0.3

    def as_usual(self) -> None:
        faults.PATIENCE_SECONDS, faults.FIRST_PATIENCE_SECONDS = self._usual
