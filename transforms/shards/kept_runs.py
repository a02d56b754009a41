"""Runs of records that a rebuild keeps: they follow each other in the earlier shard and in the new one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.ledger import WrittenEntries
from shardwright.transforms.conversion.reusable import EarlierShard, ReusableRecord

#: Number of bytes of records from which on a run takes no more.
_ENOUGH_BYTES = 1 << 20


class KeptRun(NamedTuple):
    """Unchanged records that follow each other in an earlier shard, and whose images do so in a new one.

    They are copied together, which takes a tenth of the time of copying each.

    Attributes:
      place: place of the first image among the references of the new shard.
      entries: their entries in the earlier ledger.
      shard: the earlier shard.
    """

    place: int
    entries: WrittenEntries
    shard: EarlierShard

    @property
    def size(self) -> int:
        """Number of records."""
        return len(self.entries.keys)

    def frames(self) -> bytes | None:
        """Returns the frames of all records; None if one is damaged or cannot be read."""
        return self.shard.frames(self.entries.offsets[0], self.entries.lengths)

    def records(self) -> dict[str, ReusableRecord]:
        """Returns key -> reusable record, to copy the records one by one."""
        return {entry.key: ReusableRecord(entry, True, self.shard) for entry in self.entries.entries()}


class ListedImages:
    """The references of a new shard, as far as they decide which records are kept.

    Args:
      refs: the references in order.
      digests: digest of each reference.
    """

    def __init__(self, refs: Sequence[ImageRef], digests: Sequence[str]) -> None:
        self._digests = digests
        self._states = [ref.fingerprint if ref.has_known_state else None for ref in refs]
        self._places = {ref.key: place for place, ref in enumerate(refs) if ref.is_candidate}

    def runs(self, entries: WrittenEntries, shard: EarlierShard) -> Iterator[KeptRun]:
        """Yields the runs among some entries of an earlier ledger. No image is in more than one run.

        Args:
          entries: the entries.
          shard: the shard of the ledger.
        """
        if not entries.lengths:
            return
        places = [self._places.pop(key, -1) for key in entries.keys]
        kept = map(self._is_kept, places, entries.digests, entries.fingerprints)
        begin = size = 0
        for at, (place, is_kept, offset, length) in enumerate(
            zip(places, kept, entries.offsets, entries.lengths)
        ):
            follows = place == places[begin] + at - begin and offset == entries.offsets[begin] + size
            if at > begin and not (is_kept and follows and size < _ENOUGH_BYTES):
                yield KeptRun(places[begin], entries.part(begin, at), shard)
                begin, size = at, 0
            if is_kept:
                size += length
            else:
                begin = at + 1
        if begin < len(places):
            yield KeptRun(places[begin], entries.part(begin, len(places)), shard)

    def _is_kept(self, place: int, digest: str, state: str) -> bool:
        return place >= 0 and self._digests[place] == digest and self._states[place] == state
