"""A ledger reads as it was written, and a wrong line is found."""

from __future__ import annotations

import gzip
import json

import pytest
from helpers.ledgers import dump_ledger
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.schemas.ledger import Entry, ShardHeader, load_ledger

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
