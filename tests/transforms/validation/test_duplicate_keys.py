"""Records are compared across shards, with the same findings for any number of buckets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.dataset import Shard
from shardwright.schemas.findings import Finding
from shardwright.transforms.validation.compared_records import ComparedRecord, ComparedRecords
from shardwright.transforms.validation.duplicate_keys import bucket_rows, buckets_of_rows, compare_bucket
from shardwright.transforms.validation.shard import ShardTask
from shardwright.transforms.validation.shard_totals import ShardTotals

ROWS = st.tuples(
    st.none() | st.sampled_from(["a", "b", "é\n", ""]),
    st.none() | st.sampled_from(["00" * 32, "0f" * 32, "odd"]),
    st.sampled_from(["", "train", "test"]),
    st.sampled_from(["", "cat", "dog"]),
    st.integers(0, 2**40),
)
SHARDS = st.lists(st.lists(ROWS, max_size=6), min_size=1, max_size=4)


def records(
    shards: Sequence[Sequence[tuple[str | None, str | None, str, str, int]]],
) -> list[ComparedRecords]:
    return [
        ComparedRecords(
            ComparedRecord(key, source, split, f"shard {place}", number, offset, label)
            for number, (key, source, split, label, offset) in enumerate(rows)
        )
        for place, rows in enumerate(shards)
    ]


def findings(shards: Sequence[ComparedRecords], buckets: int, keys: bool = True) -> list[Finding]:
    packs = defaultdict(list)
    for rows in shards:
        for bucket, pack in bucket_rows(rows, buckets, keys):
            packs[bucket].append(pack)
    return sorted((found for item in packs.items() for found in compare_bucket(item)), key=repr)


@given(SHARDS, st.booleans())
def test_any_number_of_buckets_gives_the_same_findings(shards: list, keys: bool) -> None:
    rows = records(shards)
    found = findings(rows, 1, keys)
    assert found == findings(rows, 2, keys) == findings(rows, 4096, keys)
    known = [row.key for one in rows for row in one if row.key is not None]
    duplicates = sum(one.code == "DUPLICATE_KEY" for one in found)
    assert duplicates == (len(known) - len(set(known)) if keys else 0)


@pytest.mark.parametrize(
    ("count", "buckets"), [(0, 1), (50_000, 1), (50_001, 2), (10**6, 20), (10**10, 4096)]
)
def test_buckets_are_as_many_as_the_rows_need(count: int, buckets: int) -> None:
    assert buckets_of_rows(count) == buckets


def test_shards_of_unknown_size_get_a_bucket_each() -> None:
    sums, others = ShardTotals(), ShardTotals()
    sums.add(ShardTask("", "a", "", Shard("a", 60_000, 0, "")))
    assert (sums.buckets_of_rows, sums.buckets) == (2, 16)
    for number in range(20):
        others.add(ShardTask("", f"b{number}", "", None))
    sums.merge(others)
    assert (sums.shards, sums.unknown, sums.records) == (21, 20, 60_000)
    assert sums.buckets_of_rows == sums.buckets == 21
