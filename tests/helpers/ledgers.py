"""Makes the ledgers of shards from entries."""

from __future__ import annotations

from collections.abc import Iterable

from shardwright.schemas.ledger import Entry, LedgerLines, ShardHeader, ShardResult
from shardwright.schemas.plan import ShardPlace


def dump_ledger(header: ShardHeader, entries: Iterable[Entry]) -> bytes:
    """Returns the ledger file of some entries."""
    return LedgerLines(entries).dump(header)


def result_of(place: ShardPlace, entries: Iterable[Entry]) -> ShardResult:
    """Returns a result with the sums of some entries, without the values that come from the shard's file."""
    return ShardResult(LedgerLines(entries).header(place))
