"""Records of an earlier build that this build may copy."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from shardwright.schemas.ledger import Entry


class EarlierShard(Protocol):
    """A shard of an earlier build."""

    def frame(self, offset: int, length: int) -> bytes | None:
        """Returns the frame of a record; None if the frame is damaged.

        Args:
          offset: offset of the frame in the uncompressed shard.
          length: length of the frame in bytes.
        """


class ReusableRecord(NamedTuple):
    """The record that an earlier build made of an image from the same reference.

    Attributes:
      entry: the image's ledger entry.
      unchanged: whether the source still has the same state.
      shard: the shard that holds the record.
    """

    entry: Entry
    unchanged: bool
    shard: EarlierShard

    def read(self) -> bytes | None:
        """Returns the frame of the record; None if it is damaged or missing."""
        offset, length = self.entry.offset, self.entry.length
        return None if offset is None or length is None else self.shard.frame(offset, length)
