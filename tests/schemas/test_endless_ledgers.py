"""A small ledger that unpacks to far more lines than its header counts is damaged, and needs no memory."""

from __future__ import annotations

import gzip
import json
import tracemalloc

import pytest
from helpers.ledgers import dump_ledger

from shardwright.schemas.codes import Outcome
from shardwright.schemas.ledger import (
    Entry,
    ShardHeader,
    is_whole,
    line_blocks,
    load_ledger,
)

ENTRIES = [Entry(key=f"{number}.png", outcome=Outcome.WRITTEN) for number in range(5)]
HEADER = ShardHeader("train-0", "train", 0, 1, "digest", 5, 1000, "sha", {"written": 5}, {}, {})
LEDGER = dump_ledger(HEADER, ENTRIES)
LINES = gzip.decompress(LEDGER)


def _peak_of(data: bytes) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="damaged"):
            load_ledger(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_sound_ledger_reads_as_it_was_written() -> None:
    result, entries = load_ledger(LEDGER)
    assert (result.counts, list(entries)) == ({"written": 5}, ENTRIES)
    assert is_whole(LEDGER)
    assert next(line_blocks(LEDGER)) == LINES.split(b"\n")[:1]


@pytest.mark.parametrize(
    "more",
    [b"{}\n", b"{}", b'{"key": "a", "outcome": "filtered"}\n' * 100_000, bytes(50_000_000)],
    ids=["line", "unfinished line", "lines", "zeros"],
)
def test_more_lines_than_the_header_counts_are_damage(more: bytes) -> None:
    data = gzip.compress(LINES + more)
    assert not is_whole(data)
    assert _peak_of(data) < 40_000_000


@pytest.mark.parametrize("counts", [None, {"written": "many"}, [5], {"written": None}])
def test_a_header_without_counts_is_damage(counts: object) -> None:
    header, _, rest = LINES.partition(b"\n")
    changed = json.dumps({**json.loads(header), "counts": counts}).encode()
    data = gzip.compress(changed + b"\n" + rest)
    assert not is_whole(data)
    with pytest.raises(ValueError, match="damaged"):
        load_ledger(data)
