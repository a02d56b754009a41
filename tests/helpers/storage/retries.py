"""How long operations of storages are retried in a test."""

from __future__ import annotations

from shardwright.core.storage import retries


class Retries:
    """How long operations are retried: as long as usual, or from some event on only for a moment."""

    def __init__(self) -> None:
        self._usual = retries.PATIENCE_SECONDS, retries.FIRST_PATIENCE_SECONDS

    def end_soon(self) -> None:
        """Ends all retries soon. What comes before this call has time, however busy the machine is."""
        retries.PATIENCE_SECONDS = retries.FIRST_PATIENCE_SECONDS = 0.3

    def as_usual(self) -> None:
        retries.PATIENCE_SECONDS, retries.FIRST_PATIENCE_SECONDS = self._usual
