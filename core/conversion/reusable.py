"""Records of an earlier build that this build may copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from shardwright.schemas.codes import Outcome
from shardwright.schemas.ledger import Entry


class EarlierShard(Protocol):
    """A shard of an earlier build."""

    def frames(self, offset: int, lengths: Sequence[int]) -> bytes | None:
        """Returns the frames of records that follow each other; None if one of them is damaged.

        Args:
          offset: Offset of the first frame in the uncompressed shard.
          lengths: Length of each frame in bytes.
        """


class SourceDigests(NamedTuple):
    """Hex digests of the bytes from which an earlier build made a record.

    Attributes:
      sha256: Digest of the image's bytes.
      mask_sha256: Digest of its mask's bytes; empty without a mask.
    """

    sha256: str
    mask_sha256: str


class ReusableRecord(NamedTuple):
    """The record that an earlier build made of an image from the same reference.

    Attributes:
      entry: The image's ledger entry.
      unchanged: Whether the source still has the same state.
      shard: The shard that holds the record.
      more: Entries of the other images that `--map` made of the source, in order.
    """

    entry: Entry
    unchanged: bool
    shard: EarlierShard
    more: tuple[Entry, ...] = ()

    @property
    def source_digests(self) -> SourceDigests | None:
        """Digests of the bytes that were converted; None if no record was made of them."""
        if self.entry.outcome != Outcome.WRITTEN:
            return None
        return SourceDigests(self.entry.sha256, self.entry.mask_sha256)

    def frames(self) -> list[tuple[Entry, bytes]] | None:
        """Returns the entries and frames of all records; None if one is damaged or missing."""
        found = []
        for entry in (self.entry, *self.more):
            if entry.offset is None or entry.length is None:
                return None
            frame = self.shard.frames(entry.offset, (entry.length,))
            if frame is None:
                return None
            found.append((entry, frame))
        return found
