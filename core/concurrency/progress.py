"""Counts the progress of this process, for display."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass
class Progress:
    """Counters that workers in this process add to; reading them needs no lock.

    Attributes:
      images: Number of finished images, with any outcome.
      bad: Number of quarantined images.
      shards: Number of finished shards.
      total_images: Total number of images; 0 while unknown.
      total_shards: Total number of shards; 0 while unknown.
      listed: Number of listed files.
      checked_records: Number of records read back.
      checked_shards: Number of shards read back.
      findings: Number of findings so far.
      sentences: Messages of workers that should be shown at once.
      tree: Description of the input (`Forecast.tree`); empty while unknown.
    """

    images: int = 0
    bad: int = 0
    shards: int = 0
    total_images: int = 0
    total_shards: int = 0
    listed: int = 0
    checked_records: int = 0
    checked_shards: int = 0
    findings: int = 0
    sentences: list[str] = field(default_factory=list)
    tree: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, **counts: int) -> None:
        """Adds finished work to the counters named."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def tell(self, *sentences: str) -> None:
        """Adds sentences to show."""
        with self._lock:
            self.sentences += sentences

    def taken_sentences(self) -> list[str]:
        """Returns the sentences that were not shown yet, and marks them as shown."""
        with self._lock:
            sentences, self.sentences = self.sentences, []
            return sentences

    def reset(self) -> None:
        """Resets all counters for a new run."""
        with self._lock:
            vars(self).update(vars(Progress()) | {"_lock": self._lock})


#: The progress of this process.
PROGRESS = Progress()
