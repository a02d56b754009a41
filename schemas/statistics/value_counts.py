"""Counts occurrences of distinct values, or estimates the number of values if there are too many.

Values are counted while there are few of them. If there are more, the smallest hashes are kept, from which
the number of distinct values is estimated (Bar-Yossef et al., "Counting distinct elements in a data stream",
2002).
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import struct
from collections.abc import Iterator, Mapping
from typing import Any

_VALUE_BYTES = 64
#: With this many hashes, the estimate is accurate to about 3 %.
_MAX_HASHES = 1024


class ValueCounts:
    """The occurrences of each distinct value, or an estimate of the number of values if there are too many.

    Attributes:
      most: Maximum number of distinct values to count, of 64 bytes each on average.
      counts: Value -> occurrences; None if there are too many values.
      hashes: The smallest hashes of the values, if there are too many values.
    """

    __slots__ = ("bytes", "counts", "hashes", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.counts: dict[bytes, int] | None = {}
        self.hashes: set[int] = set()
        self.bytes = 0

    def add(self, value: bytes, times: int = 1) -> None:
        """Adds a value."""
        if self.counts is None:
            self._add_hash(_hash(value))
            return
        known = self.counts.get(value, 0)
        self.counts[value] = known + times
        if not known:
            self.bytes += len(value)
            # Depends on the set of all values, so the order in which they come does not matter.
            if len(self.counts) > self.most or self.bytes > self.most * _VALUE_BYTES:
                self._overflow()

    def _overflow(self) -> None:
        values, self.counts = self.counts or {}, None
        for value in values:
            self._add_hash(_hash(value))
        self._trim()

    def _add_hash(self, number: int) -> None:
        self.hashes.add(number)
        if len(self.hashes) >= 2 * _MAX_HASHES:
            self._trim()

    def _trim(self) -> None:
        if len(self.hashes) > _MAX_HASHES:
            self.hashes = set(heapq.nsmallest(_MAX_HASHES, self.hashes))

    def merge(self, other: ValueCounts) -> ValueCounts:
        """Adds the values of another; returns itself."""
        if other.counts is None:
            if self.counts is not None:
                self._overflow()
            self.hashes |= other.hashes
            self._trim()
        else:
            for value, times in other.counts.items():
                self.add(value, times)
        return self

    @property
    def unique(self) -> int:
        """Number of distinct values; an estimate if there are too many to count."""
        if self.counts is not None:
            return len(self.counts)
        self._trim()
        if len(self.hashes) < _MAX_HASHES:
            return len(self.hashes)
        return round((_MAX_HASHES - 1) * 2**64 / max(self.hashes))

    def most_common(self) -> Iterator[tuple[bytes, int]]:
        """Yields values and their occurrences, the most frequent first; none if there are too many values."""
        yield from sorted((self.counts or {}).items(), key=lambda item: (-item[1], item[0]))

    def state(self) -> dict[str, Any]:
        """Returns the counts as JSON for `from_state`."""
        if self.counts is None:
            self._trim()
            packed = struct.pack(f"<{len(self.hashes)}Q", *sorted(self.hashes))
            return {"most": self.most, "hashes": base64.b64encode(packed).decode()}
        # Latin-1 decodes any bytes, and ASCII values stay readable.
        return {
            "most": self.most,
            "counts": {value.decode("latin-1"): times for value, times in sorted(self.counts.items())},
        }

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> ValueCounts:
        """Reads the result of `state`."""
        loaded = ValueCounts(int(state["most"]))
        if "hashes" in state:
            packed = base64.b64decode(state["hashes"])
            loaded.counts, loaded.hashes = (
                None,
                set(struct.unpack(f"<{len(packed) // 8}Q", packed)),
            )
        else:
            loaded.counts = {value.encode("latin-1"): int(times) for value, times in state["counts"].items()}
            loaded.bytes = sum(map(len, loaded.counts))
        return loaded

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValueCounts) and self.state() == other.state()

    __hash__ = None  # type: ignore[assignment]


def _hash(value: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "little")
