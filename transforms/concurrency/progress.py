"""How far the work of this process has come, for whoever wants to show it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, fields


@dataclass
class Progress:
    """Counters that workers in this process add to; reading them needs no lock.

    Attributes:
      images: images finished, whatever their outcome.
      bad: images quarantined.
      shards: shards finished.
      total_images: images to do, 0 while unknown.
      total_shards: shards to do, 0 while unknown.
      listed: files listed.
      checked_records: records read back.
      checked_shards: shards read back.
      findings: what their check found.
      sentences: what a worker found out that people should read at once.
      tree: what the input holds (`Forecast.tree`), empty while that is unknown.
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
        """Adds sentences for whoever shows the progress."""
        with self._lock:
            self.sentences += sentences

    def taken_sentences(self) -> list[str]:
        """Returns the sentences that nobody has shown yet, and counts them as shown."""
        with self._lock:
            taken, self.sentences = self.sentences, []
            return taken

    def reset(self) -> None:
        """Begins a new run."""
        with self._lock:
            for item in fields(self):
                if item.name == "sentences":
                    self.sentences = []
                elif item.name != "_lock":
                    setattr(self, item.name, item.default)


#: The board of this process.
PROGRESS = Progress()
