"""The place of an image: fixed hashes, fair shares, and little movement as data grows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.core.plan.assign import (
    HASH_RANGE,
    fill_empty_shards,
    group_of,
    hash64,
    limit_order,
    shard_of,
    shard_order,
)
from shardwright.core.plan.forecast import Placement
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef

KEYS = [f"cats/{i:05d}.jpg" for i in range(20_000)]


@pytest.mark.parametrize(
    ("seed", "purpose", "text", "value"),
    [
        (0, "split", "a", 16277815257979157415),
        (1, "split", "a", 1727319276487412507),
        (0, "shard", "a", 15503968048430234080),
        (2**63 - 1, "shard", "é/ß.png", 2647607516739037490),
        (0, "split", "", 7337491314669435572),
    ],
)
def test_hashes_never_change(seed: int, purpose: str, text: str, value: int) -> None:
    assert hash64(seed, purpose, text) == value


def splits_of(keys: Iterable[str], splits: str, seed: int = 0) -> list[str]:
    """Returns the split of each key."""
    placement = Placement(ConvertSettings(splits=splits, seed=seed))
    return [placement.split(ImageRef(key, key)) for key in keys]


def test_splits_have_their_shares_and_are_independent_of_shards() -> None:
    splits = splits_of(KEYS, "train=0.8,validation=0.1,test=0.1")
    counts = Counter(splits)
    assert counts["train"] == pytest.approx(16_000, abs=4 * 57)  # four standard deviations
    assert counts["validation"] == pytest.approx(2_000, abs=4 * 43)
    test = [key for key, split in zip(KEYS, splits, strict=True) if split == "test"]
    shards = Counter(shard_of(hash64(0, "shard", key), 4) for key in test)
    assert min(shards.values()) > 400


def test_another_seed_is_another_split() -> None:
    first, second = (splits_of(KEYS, "a=0.5,b=0.5", seed) for seed in (0, 1))
    assert 9_000 < sum(one != other for one, other in zip(first, second, strict=True)) < 11_000
    assert set(splits_of(KEYS[:9], "only=1")) == {"only"}


def test_growing_a_share_moves_keys_only_into_it() -> None:
    moves = zip(splits_of(KEYS, "train=0.5,test=0.5"), splits_of(KEYS, "train=0.6,test=0.4"), strict=True)
    assert {*moves} == {("train", "train"), ("test", "test"), ("test", "train")}


def test_doubling_the_shards_splits_each_in_two() -> None:
    for key in KEYS[:2000]:
        value = hash64(0, "shard", key)
        assert shard_of(value, 16) // 2 == shard_of(value, 8)


@given(st.lists(st.integers(0, HASH_RANGE - 1), min_size=2), st.integers(1, 99_999))
def test_shards_are_in_range_and_keep_the_order_of_the_hashes(values: list[int], count: int) -> None:
    shards = [shard_of(value, count) for value in sorted(values)]
    assert shards == sorted(shards)
    assert 0 <= shards[0] <= shards[-1] < count
    assert (shard_of(0, count), shard_of(HASH_RANGE - 1, count)) == (0, count - 1)


def test_the_order_inside_a_shard_is_by_hash_then_key() -> None:
    assert shard_order(3, "k") == (hash64(3, "shard", "k"), "k")


def test_groups_share_a_split() -> None:
    assert group_of("p1/a.jpg", None) is None
    assert group_of("p1/a.jpg", re.compile(r"p(\d)/")) == "1"
    assert group_of("p1/a.jpg", re.compile(r"p\d")) == "p1"
    assert group_of("p1/a.jpg", re.compile(r"x")) is None
    assert group_of("p1/a.jpg", re.compile(r"p1/(b)?")) == "p1/", "a group that took no part"
    assert group_of("p1/a.jpg", re.compile(r"(p)(1)")) == "p"


def test_a_limit_takes_images_of_all_shards() -> None:
    taken = sorted(KEYS, key=lambda key: limit_order(0, key))[:600]
    shards = Counter(shard_of(shard_order(0, key)[0], 4) for key in taken)
    assert min(shards.values()) > 110 and set(shards) == {0, 1, 2, 3}


def _placed(hashes: list[int], count: int) -> list[int]:
    moved = fill_empty_shards(hashes, count)
    return [moved.get(value, shard_of(value, count)) for value in sorted(hashes)]


@given(st.lists(st.integers(0, HASH_RANGE - 1), min_size=1, max_size=60, unique=True), st.integers(1, 40))
def test_no_shard_is_empty(hashes: list[int], count: int) -> None:
    placed = _placed(hashes, count)
    assert placed == sorted(placed)  # shards are in the order of the hashes
    usual = [shard_of(value, count) for value in sorted(hashes)]
    if len(hashes) < count or set(usual) == set(range(count)):
        assert placed == usual
    else:
        assert set(placed) == set(range(count))
    assert fill_empty_shards(hashes[::-1], count) == fill_empty_shards(hashes, count)


def test_as_many_images_as_shards_fill_every_shard() -> None:
    assert _placed([HASH_RANGE - 1 - i for i in range(8)], 8) == list(range(8))
    assert _placed(list(range(8)), 8) == list(range(8))


def test_only_the_neighbors_of_an_empty_shard_change() -> None:
    eighth = HASH_RANGE // 8
    hashes = [shard * eighth + i for shard in (0, 1, 2, 4, 5, 6, 7) for i in range(3)]
    assert fill_empty_shards(hashes, 8) == {4 * eighth: 3}
    hashes = [shard * eighth + i for shard in range(7) for i in range(3)]
    assert fill_empty_shards(hashes, 8) == {6 * eighth + 2: 7}


def test_a_growing_collection_moves_few_images() -> None:
    hashes = [hash64(0, "shard", key) for key in KEYS[:240]]
    before = dict(zip(sorted(hashes[:200]), _placed(hashes[:200], 100), strict=True))
    after = dict(zip(sorted(hashes), _placed(hashes, 100), strict=True))
    assert set(before.values()) == set(after.values()) == set(range(100))
    assert sum(before[value] != after[value] for value in before) < 20


def test_shards_of_many_images_are_never_repaired() -> None:
    assert fill_empty_shards([0] * 128, 2) == {}
    assert fill_empty_shards(list(range(127)), 2) == {126: 1}
