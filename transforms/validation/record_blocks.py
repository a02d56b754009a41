"""Ordinary records, which are sound and repeat earlier ones: their values as columns."""

from __future__ import annotations

from typing import NamedTuple


class OrdinaryRecords(NamedTuple):
    """Values of consecutive sound records. Each column is a tuple, or None if the records do not say.

    Attributes:
      number: Number of the first record in its shard.
      offsets: Byte offset of each frame.
      lengths: Number of bytes of each frame.
      keys: Keys of the images.
      basenames: Last parts of the keys, if the records store them.
      sources: sha256 of the source images.
      labels: Class names joined as in a ledger.
    """

    number: int
    offsets: tuple[int, ...]
    lengths: tuple[int, ...]
    keys: tuple[str, ...] | None
    basenames: tuple[str, ...] | None
    sources: tuple[str, ...] | None
    labels: tuple[str, ...] | None

    def part(self, first: int, stop: int) -> OrdinaryRecords:
        """Returns the records from the place `first` up to, but excluding, `stop`."""

        def cut(column: tuple[str, ...] | None) -> tuple[str, ...] | None:
            return None if column is None else column[first:stop]

        return OrdinaryRecords(
            self.number + first,
            self.offsets[first:stop],
            self.lengths[first:stop],
            cut(self.keys),
            cut(self.basenames),
            cut(self.sources),
            cut(self.labels),
        )
