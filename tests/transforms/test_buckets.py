"""Rows reach their bucket and come out of a pack as they went in."""

from __future__ import annotations

import pytest

from shardwright.transforms.buckets import bucket_of, pack_rows, unpack_rows


@pytest.mark.parametrize("count", [0, 1, 7, 500])
def test_packs_of_any_size_are_unpacked(count: int) -> None:
    rows = [(f"é{number}", number, None, "same") for number in range(count)]
    pack = pack_rows(rows)
    assert list(unpack_rows(pack)) == rows


@pytest.mark.parametrize("buckets", [1, 16, 4096])
def test_all_buckets_are_used(buckets: int) -> None:
    found = {bucket_of(f"class/{number}.jpg", buckets) for number in range(20 * buckets)}
    assert found == set(range(buckets))
