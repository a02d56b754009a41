"""A record that an earlier build wrote and this one may copy."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from shardwright.schemas.ledger import Entry


class EarlierShard(Protocol):
    """A shard of an earlier build."""

    def frame(self, offset: int, length: int) -> bytes | None:
        """Returns the frame of a record; None if it is damaged.

        Args:
          offset: first byte of the frame in the uncompressed shard.
          length: number of bytes of the frame.
        """


class ReusableRecord(NamedTuple):
    """What an earlier build made of an image that is asked for in the same way now.

    Attributes:
      entry: its line of the ledger.
      unchanged: whether its source has the state that it had then.
      shard: that holds its record.
    """

    entry: Entry
    unchanged: bool
    shard: EarlierShard

    def read(self) -> bytes | None:
        """Returns the record's frame; None if it is damaged or there is none."""
        offset, length = self.entry.offset, self.entry.length
        return None if offset is None or length is None else self.shard.frame(offset, length)
