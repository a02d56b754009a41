"""Ledgers: read as they were written, collected in groups, and refused in little memory if wrong."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from dataclasses import replace

import pytest
from helpers.ledgers import dump_ledger
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.schemas import ledger_lines
from shardwright.schemas.codes import FilterReason, Outcome
from shardwright.schemas.ledger import (
    Entry,
    ShardHeader,
    dump_index,
    is_whole,
    line_blocks,
    load_ledger,
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


_TEXTS = st.text(max_size=8) | st.sampled_from(
    ["a", "class/a b.jpg", 'a"b', "a\\u0062", "a\\", "é", "\U0001f41f", "\ud83d", "\ude00", "~", "\x7f", "\n"]
)
_NUMBERS = st.none() | st.integers(0, 10**19)
#: Entries of written images as `convert` writes them, and unusual ones.
_ORDINARY = st.fixed_dictionaries(
    {
        "key": _TEXTS, "outcome": st.just("written"), "fingerprint": _TEXTS, "sha256": _TEXTS,
        "label": _TEXTS, "offset": _NUMBERS, "length": _NUMBERS,
        "stored": st.sampled_from(["kept", "encoded"]),
        "format": st.sampled_from(["jpg", ""]), "digest": _TEXTS, "source_width": _NUMBERS,
        "source_height": _NUMBERS, "source_bytes": _NUMBERS,
    }
).map(lambda values: Entry(**values))  # fmt: skip
_OTHER = st.fixed_dictionaries(
    {
        "key": _TEXTS, "outcome": st.sampled_from(["written", "filtered", "quarantined"]), "reason": _TEXTS,
        "animated": st.booleans(), "boxes": st.none() | st.dictionaries(_TEXTS, st.integers(), max_size=2),
        "fold": st.none() | st.integers(0, 3), "source_key": _TEXTS,
    }
).map(lambda values: Entry(**values))  # fmt: skip


def dumped(entries: list[Entry]) -> bytes:
    """Returns a ledger with entries."""
    return dump_ledger(
        ShardHeader("a", "train", 0, 1, "", 0, 0, "", {"written": len(entries)}, {}, {}), entries
    )


@given(st.lists(_ORDINARY | _OTHER, max_size=6))
@example(
    [Entry(f"é{number % 3}.jpg", "filtered" if number in (0, 5, 19) else "written") for number in range(20)]
)
def test_a_ledger_reads_as_it_was_written(entries: list[Entry]) -> None:
    assert list(load_ledger(dumped(entries))[1]) == entries


@pytest.mark.parametrize(
    "line", [b"[]", b'{"key": "a"}', b'{"key": "a", "outcome": "written", "offset": 01}']
)
def test_a_wrong_line_is_found(line: bytes) -> None:
    head, *lines = gzip.decompress(
        dumped([Entry("a", "written", offset=number) for number in range(3)])
    ).splitlines()
    data = gzip.compress(b"\n".join([head, *lines[:2], line]) + b"\n")
    with pytest.raises((ValueError, TypeError)):
        list(load_ledger(data)[1])
    assert json.loads(lines[0])["offset"] == 0


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
