"""References that are unpacked in parts are those that are unpacked at once, in the same order."""

from __future__ import annotations

import tracemalloc
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.image_ref import ImageRef, encode_refs
from shardwright.transforms.plan.assign import shard_order
from shardwright.transforms.shards import ordered_refs
from shardwright.transforms.shards.ordered_refs import OrderedRefs

_REFS = st.builds(
    ImageRef, st.text("ab\u00e9", max_size=3), st.sampled_from(["x/a", "b"]), st.text(max_size=2)
)


def few_at_once(patch: pytest.MonkeyPatch, most: int, part: int, together: int) -> None:
    """Changes the numbers of references that are unpacked and packed at once."""
    for name, number in (("_MAX_AT_ONCE", most), ("_PART", part), ("_PACKED_TOGETHER", together)):
        patch.setattr(ordered_refs, name, number)


@given(
    st.lists(st.lists(_REFS, max_size=9), max_size=5),
    st.integers(0, 20),
    st.integers(1, 9),
    st.integers(1, 4),
    st.sampled_from([1, 3, 2**64]),
)
def test_parts_are_the_whole(
    batches: list[list[ImageRef]], most: int, part: int, together: int, different_hashes: int
) -> None:
    """Also if keys are equal, or only their hashes."""

    def hashes(seed: int, keys: list[str]) -> list[bytes]:
        return [(shard_order(seed, key)[0] % different_hashes).to_bytes(8, "big") for key in keys]

    def order(ref: ImageRef) -> tuple[int, str]:
        value, key = shard_order(7, ref.key)
        return value % different_hashes, key

    expected = sorted((ref for batch in batches for ref in batch), key=order)
    packed = [encode_refs(batch) for batch in batches]
    with pytest.MonkeyPatch.context() as patch, mock.patch.object(ordered_refs, "shard_hashes", hashes):
        few_at_once(patch, most, part, together)
        found = OrderedRefs.by_hash(packed, 7)
        assert len(found) == len(expected)
        assert [*found] == [*found] == expected
        assert [*OrderedRefs(packed, found.order)] == expected
        sizes = [len(refs) for refs in found.parts()]
        assert max(sizes, default=0) <= (most if len(expected) <= most else part)


@pytest.mark.slow
def test_many_references_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    few_at_once(monkeypatch, 1000, 1000, 250)

    def peak_of(count: int) -> int:
        refs = [ImageRef(f"class/{number:09}.jpg", f"/in/class/{number:09}.jpg") for number in range(count)]
        packed = [encode_refs(refs[begin : begin + 1000]) for begin in range(0, count, 1000)]
        del refs
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        assert sum(1 for _ in OrderedRefs.by_hash(packed, 0)) == count
        return tracemalloc.get_traced_memory()[1] - before

    tracemalloc.start()
    try:
        assert (peak_of(20_000) - peak_of(10_000)) / 10_000 < 150  # an unpacked reference takes 700 bytes
    finally:
        tracemalloc.stop()
