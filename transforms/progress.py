"""How far the work of this process has come, for whoever wants to show it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


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
    """

    images: int = 0
    bad: int = 0
    shards: int = 0
    total_images: int = 0
    total_shards: int = 0
    listed: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, images: int = 0, bad: int = 0, shards: int = 0, listed: int = 0) -> None:
        """Adds finished work."""
        with self._lock:
            self.images += images
            self.bad += bad
            self.shards += shards
            self.listed += listed

    def reset(self) -> None:
        """Begins a new run."""
        with self._lock:
            self.images = self.bad = self.shards = self.listed = 0
            self.total_images = self.total_shards = 0


#: The board of this process.
PROGRESS = Progress()
