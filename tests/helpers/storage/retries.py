"""How long operations on Google Cloud Storage are retried in a test."""

from __future__ import annotations

from shardwright.transforms.storage import gcs


class Retries:
    """How long operations are retried: as long as usual, or from some event on only for a moment."""

    def __init__(self) -> None:
        self._usual = gcs.RETRY_SECONDS, gcs.FIRST_RETRY_SECONDS

    def end_soon(self) -> None:
        """Ends all retries soon. What comes before this call has time, however busy the machine is."""
        gcs.RETRY_SECONDS = gcs.FIRST_RETRY_SECONDS = 0.3

    def as_usual(self) -> None:
        gcs.RETRY_SECONDS, gcs.FIRST_RETRY_SECONDS = self._usual
