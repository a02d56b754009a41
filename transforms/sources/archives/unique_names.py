"""Finds duplicate names in an archive, with a few bytes of memory for each name."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable

import numpy as np

from shardwright.transforms.sources.name_hash import name_hash


class UniqueNames:
    """Gives each entry of an archive a unique name.

    First `add` all names. Then `settle` examines the names that may be duplicates, so only these are
    kept in memory.
    """

    def __init__(self) -> None:
        self._hashes = array("Q")
        self._sorted = np.empty(0, np.uint64)
        self._twice: frozenset[int] = frozenset()
        self._count: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._given: set[str] = set()
        self._number: dict[str, int] = {}

    def add(self, name: str) -> None:
        """Adds the name of an entry."""
        self._hashes.append(name_hash(name))

    def settle(self, sound: Iterable[str]) -> None:
        """Finds out which names are duplicates.

        Args:
          sound: Names of all entries without other faults, which may keep their names.
        """
        self._sorted = np.sort(np.frombuffer(self._hashes, np.uint64))
        self._twice = frozenset(self._sorted[1:][self._sorted[1:] == self._sorted[:-1]].tolist())
        if self._twice:
            self._count.update(name for name in sound if name_hash(name) in self._twice)

    def place(self, name: str) -> tuple[int, int]:
        """Returns (number, total) of an entry among the sound entries with its name.

        The number begins at 1 and increases with each call.
        """
        total = self._count.get(name, 1)
        if total == 1:
            return 1, 1
        self._seen[name] += 1
        return self._seen[name], total

    def spare(self, name: str) -> str:
        """Returns a name for an entry that is not sound: its own name if no other entry has it."""
        return self.other(name) if name_hash(name) in self._twice else name

    def other(self, name: str) -> str:
        """Returns a similar name that no other entry has."""
        number = self._number.get(name, 2)
        while self._is_taken(candidate := f"{name}#{number}"):
            number += 1
        self._number[name] = number + 1
        self._given.add(candidate)
        return candidate

    def _is_taken(self, name: str) -> bool:
        wanted = np.uint64(name_hash(name))
        found = int(np.searchsorted(self._sorted, wanted))
        same = found < len(self._sorted) and self._sorted[found] == wanted
        return bool(same) or name in self._given
