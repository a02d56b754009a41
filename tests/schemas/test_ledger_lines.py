"""Lines that are collected in groups give the ledger, the index and the sums of all entries."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas import ledger_lines
from shardwright.schemas.codes import FilterReason, Outcome
from shardwright.schemas.ledger import (
    Entry,
    dump_index,
    written_entries,
)
from shardwright.schemas.ledger_lines import LedgerLines
from shardwright.schemas.shard_totals import ShardTotals

_PLACE = ("train", 0, 1)


def filtered(number: int) -> Entry:
    """Returns the entry of a file that was left out when it was listed."""
    return Entry(
        f"class/{number:08}.jpg",
        Outcome.FILTERED,
        f"1234:{number}",
        reason=FilterReason.NOT_INCLUDED,
        digest=f"{hash(number) & 0xFFFFFFFF:016x}",
    )


_ENTRIES = st.builds(
    Entry,
    st.text(),
    st.sampled_from([outcome.value for outcome in Outcome]),
    st.text(max_size=5),
    st.text("0123456789abcdef", min_size=64, max_size=64),
    st.sampled_from(["", "a", "b|c"]),
    st.none() | st.integers(0, 10**12),
    st.none() | st.integers(0, 10**6),
    boxes=st.none() | st.just({"written": 1}),
)


@given(st.lists(_ENTRIES, max_size=40), st.integers(1, 9), st.integers(1, 9000))
def test_groups_do_not_change_the_files(entries: list[Entry], together: int, block_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_lines, "_ENTRIES_TOGETHER", together)
        patch.setattr(ledger_lines, "_BLOCK_BYTES", block_bytes)
        lines = LedgerLines.of(entries)
        header = replace(lines.header(*_PLACE), file="train-00000-of-00001.tfrecord")
        data = lines.dump(header)
        assert data == lines.dump(header)
    text = [json.dumps(header.as_json(), sort_keys=True), *(json.dumps(entry.as_json()) for entry in entries)]
    at_once = io.BytesIO()
    with gzip.GzipFile(fileobj=at_once, mode="wb", mtime=0, filename="", compresslevel=1) as file:
        file.write("\n".join(text).encode("ascii") + b"\n")
    assert data == at_once.getvalue()
    assert lines.index == dump_index(entries)
    totals = ShardTotals()
    for entry in entries:
        totals.add(entry)
    assert lines.header(*_PLACE) == totals.header(*_PLACE)


@pytest.mark.slow
def test_lines_take_a_fraction_of_the_memory_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_lines, "_BLOCK_BYTES", 1 << 18)

    def peak_of(count: int) -> int:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        lines = LedgerLines.of(map(filtered, range(count)))
        lines.dump(lines.header(*_PLACE))
        return tracemalloc.get_traced_memory()[1] - before

    tracemalloc.start()
    try:
        assert (peak_of(40_000) - peak_of(20_000)) / 20_000 < 120  # an entry takes 600 bytes
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_entries_that_are_not_wanted_take_no_memory() -> None:
    entries = [Entry("a.jpg", Outcome.WRITTEN, offset=0, length=20), *map(filtered, range(30_000))]
    lines = LedgerLines.of(entries)
    data = lines.dump(replace(lines.header(*_PLACE), sha256="x"))
    tracemalloc.start()
    try:
        assert written_entries(data, "x") == entries[:1]
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()
