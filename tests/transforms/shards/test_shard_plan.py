"""The plan of a shard, and references that are unpacked in parts."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef, encode_refs
from shardwright.schemas.plan import Forecast, Plan
from shardwright.transforms.plan.assign import shard_order
from shardwright.transforms.plan.planned_shard import PlannedShard
from shardwright.transforms.shards import ordered_refs
from shardwright.transforms.shards.ordered_refs import OrderedRefs
from shardwright.transforms.shards.shard_plan import plan_shard

SETTINGS = ConvertSettings(resize="64")
PLAN = Plan(labels=("cat", "dog"), shards={"train": 1}, estimate={"train": 1}, settings={})
FORECAST = Forecast(PLAN, {"train": 1}, {"train": 1}, {}, 0, 1, {}, 0, {})
refs = st.builds(
    lambda key, label, size, version, outcome: ImageRef(
        key, "photos/a.jpg", label, size=size, version=version, outcome=outcome
    ),
    st.text(min_size=1, max_size=8),
    st.sampled_from(["cat", "dog", ""]),
    st.integers(-1, 9),
    st.sampled_from(["", "1", "2"]),
    st.sampled_from(["", "filtered"]),
)


@given(st.lists(st.lists(refs, max_size=6), max_size=3))
def test_digests_of_an_earlier_step_give_the_same_plan(batches: list[list[ImageRef]]) -> None:
    planned = PlannedShard("train", 0, 1, [encode_refs(batch) for batch in batches])
    made = plan_shard(planned, FORECAST, SETTINGS, {})
    carried: Any = pickle.loads(pickle.dumps(planned._replace(digests=made.digests)))
    again = plan_shard(carried, FORECAST, SETTINGS, {})
    assert again.digest == made.digest and again.recipe_digest == made.recipe_digest
    assert [*again.refs] == [*made.refs] and [*again.parts()] == [*made.parts()]
    candidates = [ref for ref in made.refs if ref.is_candidate]
    assert made.digests.candidates == len(candidates)
    assert made.digests.has_known_states == all(ref.has_known_state for ref in candidates)


def test_references_are_not_unpacked_unless_they_are_needed(monkeypatch: Any) -> None:
    planned = PlannedShard("train", 0, 1, [encode_refs([ImageRef("a.jpg", "a.jpg", "cat")])])
    made = plan_shard(planned, FORECAST, SETTINGS, {})
    monkeypatch.setattr(ordered_refs, "decode_refs", None)
    assert plan_shard(planned._replace(digests=made.digests), FORECAST, SETTINGS, {}).digest == made.digest


#: References of which most have only a key, a class and a state, and some one value more.
mixed_refs = st.builds(
    lambda key, label, size, more: ImageRef(key, "photos/a", label, size=size, version="1")._replace(**more),
    st.one_of(
        st.sampled_from(["a.jpg", "b.jpg", "a.HEIC", "b.heic", ".heic", "heic", "c"]), st.text(max_size=5)
    ),
    st.sampled_from(["cat", "dog", "cat\x1fdog", "bird", ""]),
    st.integers(-1, 2),
    st.sampled_from(
        [{}, {}, {}]
        + [{name: "x"} for name in ("sha256", "outcome", "reason", "crc32c", "message", "extra", "file_name")]
        + [{"outcome": "quarantined", "message": "bad"}, {"source_id": "7"}, {"fold": 1}]
    ),
)


@given(
    st.lists(mixed_refs, max_size=12),
    st.sampled_from(["classification", "detection"]),
    st.sampled_from([{}, {"pillow_heif": "1.0"}]),
)
def test_ordinary_references_have_the_digests_that_they_have_alone(
    listed: list[ImageRef], layout: str, versions: dict[str, str]
) -> None:
    settings = ConvertSettings(resize="64", layout=layout, min_bytes="1")

    def digests_of(some: list[ImageRef]) -> bytes:
        planned = PlannedShard("train", 0, 1, [encode_refs(some)] if some else [])
        return plan_shard(planned, FORECAST, settings, versions).digests.refs

    ordered = [*OrderedRefs.by_hash([encode_refs(listed)] if listed else [], settings.seed)]
    assert digests_of(listed) == b"".join(digests_of([ref]) for ref in ordered)


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
