"""Collects the lines of a shard's ledger, in a fraction of the memory that its entries take."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from itertools import chain

from shardwright.schemas.ledger import (
    Entry,
    ShardHeader,
    dump_index,
    entry_lines,
    pack_ledger,
)
from shardwright.schemas.shard_totals import ShardTotals

#: Number of entries that are turned into lines at once, and bytes of lines that are compressed at once. The
#: ledger of most shards is smaller than that.
ENTRIES_TOGETHER, BLOCK_BYTES = 4096, 1 << 22


class LedgerLines:
    """The lines of a shard's ledger and their sums.

    The header is the first line of the file and has the sums of all others, so the lines have to wait for it.
    A shard has 100,000 records at most, but any number of files may be left out.
    """

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._texts: list[bytes] = []
        self._bytes = 0
        self._packed: list[bytes] = []
        self._index: list[bytes] = []
        self._totals = ShardTotals()

    @staticmethod
    def of(entries: Iterable[Entry]) -> LedgerLines:
        """Returns the lines of all entries of a shard."""
        lines = LedgerLines()
        for entry in entries:
            lines.add(entry)
        return lines

    def add(self, entry: Entry) -> None:
        """Adds an entry."""
        self._entries.append(entry)
        if len(self._entries) >= ENTRIES_TOGETHER:
            self._settle()

    def _settle(self) -> None:
        if self._entries:
            entries, self._entries = self._entries, []
            for entry in entries:
                self._totals.add(entry)
            self._put(dump_index(entries), entry_lines(entries))

    def _put(self, index: bytes, text: bytes) -> None:
        self._index.append(index)
        self._texts.append(text)
        self._bytes += len(text)
        if self._bytes >= BLOCK_BYTES:
            self._packed.append(zlib.compress(b"".join(self._texts), 1))
            self._texts, self._bytes = [], 0

    def header(self, split: str, shard: int, num_shards: int) -> ShardHeader:
        """Returns the header with the sums, without the fields that need the shard's file.

        Args:
          split: Split of the shard.
          shard: Number of the shard, from 0.
          num_shards: Number of shards in the split.
        """
        self._settle()
        return self._totals.header(split, shard, num_shards)

    @property
    def index(self) -> bytes:
        """The index of the shard's records (`dump_index`)."""
        self._settle()
        return b"".join(self._index)

    def dump(self, header: ShardHeader) -> bytes:
        """Returns the ledger file."""
        self._settle()
        return pack_ledger(header, chain(map(zlib.decompress, self._packed), [b"".join(self._texts)]))
