"""Rows reach their bucket and come out of a pack as they went in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.core.hash_buckets import bucket_of, pack_rows, unpack_rows

TEXTS = ["", "a", "\ud800", "00", "ff", "FF", " 0", "é0", "0a\n0"]
VALUES = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(TEXTS)


@pytest.mark.parametrize("count", [0, 1, 7, 500])
def test_packs_of_any_size_are_unpacked(count: int) -> None:
    rows = [(f"é{number}", number, None, "same") for number in range(count)]
    pack = pack_rows(rows)
    assert list(unpack_rows(pack)) == rows


@given(st.integers(0, 4).flatmap(lambda width: st.lists(st.tuples(*[VALUES] * width), max_size=6)))
def test_rows_keep_their_values_and_types(rows: list[tuple[Any, ...]]) -> None:
    unpacked = list(unpack_rows(pack_rows(rows)))
    assert repr(unpacked) == repr(rows if rows and rows[0] else [])


def test_checksums_take_half_of_their_digits() -> None:
    rows = [(f"{number * 7**70 % 2**256:064x}",) for number in range(100)]
    assert len(pack_rows(rows)) < 100 * 33


@pytest.mark.parametrize("buckets", [1, 16, 4096])
def test_all_buckets_are_used(buckets: int) -> None:
    found = {bucket_of(f"class/{number}.jpg", buckets) for number in range(20 * buckets)}
    assert found == set(range(buckets))
