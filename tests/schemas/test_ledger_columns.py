"""Lines of a ledger that are parsed by column give the same entries as lines that are parsed one by one."""

from __future__ import annotations

import gzip
import json
from itertools import islice
from unittest.mock import patch

import pytest
from helpers.ledgers import dump_ledger
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.schemas import ledger
from shardwright.schemas.ledger import (
    Entry,
    ShardHeader,
    WrittenEntries,
    dump_index,
    entry_lines,
    load_blocks,
    load_ledger,
)

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


#: Lists of entries that mostly have the same fields.
_ALIKE = _ORDINARY.flatmap(
    lambda first: st.lists(
        st.tuples(_TEXTS, _TEXTS, st.integers(0, 10**17)).map(
            lambda values: first._replace(key=values[0], sha256=values[1], offset=values[2])
        ),
        max_size=6,
    )
)


@given(st.lists(_ORDINARY | _OTHER, max_size=6) | _ALIKE)
@example(
    [Entry(f"é{number % 3}.jpg", "filtered" if number in (0, 5, 19) else "written") for number in range(20)]
)
def test_a_ledger_reads_as_it_was_written(entries: list[Entry]) -> None:
    assert list(load_ledger(dumped(entries))[1]) == entries


@given(_ALIKE, st.integers(0, 6), st.integers(0, 6), st.integers(-5, 5))
@example([Entry("a", "written", offset=0, length=1)] * 4, 2, 1, 0)
def test_columns_give_the_lines_of_their_entries(
    entries: list[Entry], first: int, stop: int, distance: int
) -> None:
    for block in load_blocks(dumped(entries))[1]:
        if isinstance(block, WrittenEntries):
            found = list(block.entries())
            assert block.lines() == entry_lines(found)
            assert block.index_lines() == dump_index(found)
            assert list(block.part(first, stop).entries()) == found[first:stop]
            moved = [entry._replace(offset=(entry.offset or 0) + distance) for entry in found]
            assert list(block.moved(distance).entries()) == moved


def test_a_part_without_entries_has_none() -> None:
    (block,) = load_blocks(dumped([Entry(name, "written", offset=0) for name in "abcde"]))[1]
    assert isinstance(block, WrittenEntries)
    nothing = block.part(3, 1)
    assert list(islice(nothing.entries(), 1)) == [] and nothing.lines() == b""


def test_a_long_ledger_is_unpacked_again() -> None:
    entries = [Entry(f"{number}.png", "written", offset=number) for number in range(9000)]
    data = dumped(entries)
    for most in (0, 1, len(gzip.decompress(data)), 1 << 21):
        with patch.object(ledger, "_KEPT_BYTES", most):
            assert list(load_ledger(data)[1]) == entries


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
