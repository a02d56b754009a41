"""Parts of inputs that this process has just listed, so that a step of the same run need not list again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.labels import ClassId
from shardwright.transforms.sources.listing_digest import ListingDigest
from shardwright.transforms.sources.rule_matches import RuleMatches
from shardwright.transforms.sources.source import InputSplit

#: Maximum number of references that are kept, which take about 40 MB. More are listed again.
MAX_KEPT = 50_000


class ListedPart(NamedTuple):
    """What a part of an input contains.

    Attributes:
      found: References and class ids.
      digest: Their digest.
      matches: What the rules matched.
    """

    found: Sequence[ImageRef | ClassId]
    digest: ListingDigest
    matches: RuleMatches


class ListedParts:
    """Keeps listed parts until a step takes them. Worker processes have none, so they list again."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, InputSplit], ListedPart] = {}
        self._count = 0
        self._lock = threading.Lock()

    @property
    def room(self) -> int:
        """Number of references that can still be kept."""
        return MAX_KEPT - self._count

    def keep(self, run: str, part: InputSplit, listed: ListedPart) -> None:
        """Keeps a listed part, unless there are too many references.

        Args:
          run: Path of the spool folder, which identifies the run.
          part: The part.
          listed: What it contains.
        """
        with self._lock:
            if len(listed.found) <= self.room:
                self._parts[run, part] = listed
                self._count += len(listed.found)

    def take(self, run: str, part: InputSplit) -> ListedPart | None:
        """Returns a part and forgets it; None if it was not kept."""
        with self._lock:
            listed = self._parts.pop((run, part), None)
            self._count -= len(listed.found) if listed is not None else 0
            return listed

    def clear(self) -> None:
        """Forgets all parts."""
        with self._lock:
            self._parts.clear()
            self._count = 0


#: The listed parts of this process.
LISTED_PARTS = ListedParts()
