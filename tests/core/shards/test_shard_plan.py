"""The plan of a shard, and what is reused of earlier builds: whole shards and single records."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from helpers.hostile import flip
from helpers.ledgers import dump_ledger
from helpers.memory import traced_memory
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.core.conversion import ShardRecipe
from shardwright.core.plan.assign import PlannedShard, shard_order
from shardwright.core.records.framing import data_of
from shardwright.core.shards import shard_plan
from shardwright.core.shards.reuse import (
    PreviousBuild,
    PreviousRecords,
    can_stay,
    near,
    reuse_shard,
)
from shardwright.core.shards.shard_plan import OrderedRefs, ShardPlan, plan_shard
from shardwright.schemas.annotations import Annotations
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef, decode_refs, encode_refs
from shardwright.schemas.layouts import CLASSIFICATION
from shardwright.schemas.ledger import Entry, ShardHeader, load_ledger
from shardwright.schemas.plan import Forecast, Plan, ShardPlace, index_file, ledger_file

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
def test_a_plan_counts_the_images_that_can_still_be_written(batches: list[list[ImageRef]]) -> None:
    planned = PlannedShard(ShardPlace("train", 0, 1), [encode_refs(batch) for batch in batches])
    made = plan_shard(planned, FORECAST, SETTINGS, {})
    candidates = [ref for ref in made.refs if ref.is_candidate]
    assert made.candidates == len(candidates)
    assert made.has_known_states == all(ref.has_known_state for ref in candidates)


_REFS = st.builds(
    ImageRef, st.text("ab\u00e9", max_size=3), st.sampled_from(["x/a", "b"]), st.text(max_size=2)
)


@given(
    st.lists(st.lists(_REFS, max_size=9), max_size=5),
    st.integers(1, 20),
    st.integers(1, 4),
    st.sampled_from([1, 3, 2**64]),
)
@example(
    [[ImageRef(key, "x/a", str(place)) for place, key in enumerate(["", "", *"abcde", "", ""])]], 1, 1, 2**64
)
def test_parts_are_the_whole(
    batches: list[list[ImageRef]], part: int, together: int, different_hashes: int
) -> None:
    """Also if keys are equal, or only their hashes."""

    def order(seed: int, key: str) -> tuple[int, str]:
        return shard_order(seed, key)[0] % different_hashes, key

    expected = sorted((ref for batch in batches for ref in batch), key=lambda ref: order(7, ref.key))
    packed = [encode_refs(batch) for batch in batches]
    with pytest.MonkeyPatch.context() as patch, mock.patch.object(shard_plan, "shard_order", order):
        patch.setattr(shard_plan, "PART", part)
        patch.setattr(shard_plan, "PACKED_TOGETHER", together)
        found = OrderedRefs.by_hash(packed, 7)
        assert len(found) == len(expected)
        assert [*found] == [*found] == expected
        assert all(len(refs) <= part for refs in found.parts())


@pytest.mark.slow
def test_many_references_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_plan, "PART", 1000)
    monkeypatch.setattr(shard_plan, "PACKED_TOGETHER", 250)

    def peak_of(count: int) -> int:
        refs = [ImageRef(f"class/{number:09}.jpg", f"/in/class/{number:09}.jpg") for number in range(count)]
        packed = [encode_refs(refs[begin : begin + 1000]) for begin in range(0, count, 1000)]
        del refs
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        assert sum(1 for _ in OrderedRefs.by_hash(packed, 0)) == count
        return tracemalloc.get_traced_memory()[1] - before

    with traced_memory():
        assert (peak_of(20_000) - peak_of(10_000)) / 10_000 < 150  # an unpacked reference takes 700 bytes


SHARDS = {"train": 3, "validation": 1, "test": 1}
PLACE = ShardPlace("train", 1, 3)
SHARD = "train-00001-of-00003.tfrecord"


def ledger(dataset: Path, place: ShardPlace = PLACE) -> tuple[ShardHeader, list[Entry]]:
    result, entries = load_ledger((dataset / ledger_file(*place)).read_bytes())
    return result, list(entries)


def plan_of(digest: str = "", place: ShardPlace = PLACE, recipe: str = "") -> ShardPlan:
    """Returns a plan with these digests of a shard and of the recipe."""
    shard_recipe, refs = ShardRecipe(SETTINGS, CLASSIFICATION, {}), OrderedRefs.by_hash((), 0)
    return ShardPlan(place, shard_recipe, recipe, refs, digest, b"", 0, True)


def rewrite(dataset: Path, **changes: str) -> None:
    """Changes the ledger's entry about its last image."""
    result, entries = ledger(dataset)
    entries[-1] = entries[-1]._replace(**changes)
    (dataset / ledger_file(*PLACE)).write_bytes(dump_ledger(result, entries))


def refs_of(dataset: Path, place: ShardPlace = PLACE) -> Iterator[tuple[ImageRef, str]]:
    """Yields references that match the entries of a ledger."""
    for entry in ledger(dataset, place)[1]:
        size, _, version = entry.fingerprint.partition(":")
        yield ImageRef(entry.key, entry.key, size=int(size), version=version), entry.digest


def test_a_shard_is_reused_with_its_ledger_and_index(copied: Path, tmp_path: Path) -> None:
    result, _ = ledger(copied)
    taken = reuse_shard(str(tmp_path / "new"), str(copied), plan_of(result.plan_digest))
    assert taken is not None and taken.reused and taken.header == result
    for name in (SHARD, index_file(*PLACE), ledger_file(*PLACE)):
        assert (tmp_path / "new" / name).samefile(copied / name)
    assert reuse_shard(str(tmp_path / "new"), str(copied), plan_of(result.plan_digest)) == taken


@pytest.mark.parametrize("index", [b"0 1\n", None])
def test_a_wrong_or_missing_index_is_written_again(copied: Path, tmp_path: Path, index: bytes | None) -> None:
    place, digest = copied / index_file(*PLACE), ledger(copied)[0].plan_digest
    right = place.read_bytes()
    place.unlink()
    if index is not None:
        place.write_bytes(index)
    for directory in (tmp_path / "new", copied):
        taken = reuse_shard(str(directory), str(copied), plan_of(digest))
        assert taken is not None
        assert taken.files[index_file(*PLACE)] == hashlib.sha256(right).hexdigest()
        assert (directory / index_file(*PLACE)).read_bytes() == right


@pytest.mark.parametrize("damage", ["digest", "shard", "size", "no shard", "no ledger", "ledger"])
def test_shards_that_differ_are_not_reused(copied: Path, tmp_path: Path, damage: str) -> None:
    digest, shard, book = ledger(copied)[0].plan_digest, copied / SHARD, copied / ledger_file(*PLACE)
    if damage == "digest":
        digest = "0" * 64
    elif damage == "shard":
        flip(shard)
    elif damage == "size":
        shard.write_bytes(shard.read_bytes()[:-1])
    elif damage == "ledger":
        book.write_bytes(book.read_bytes()[:-4])
    else:
        (shard if damage == "no shard" else book).unlink()
    assert reuse_shard(str(tmp_path / "new"), str(copied), plan_of(digest)) is None
    assert not (tmp_path / "new" / ledger_file(*PLACE)).exists()


def test_a_shard_with_unreadable_images_is_written_again(copied: Path, tmp_path: Path) -> None:
    rewrite(copied, outcome="quarantined", reason="UNREADABLE", stage="read")
    digest, new = ledger(copied)[0].plan_digest, str(tmp_path / "new")
    assert reuse_shard(new, str(copied), plan_of(digest)) is None
    taken = reuse_shard(new, str(copied), plan_of(digest), final=False)  # the images have been read again
    assert taken is not None
    bad = [entry for entry in ledger(tmp_path / "new")[1] if entry.outcome == "quarantined"]
    assert [entry.reason for entry in bad] == ["UNREADABLE"]


def test_records_are_found_in_any_shard(copied: Path) -> None:
    build = PreviousBuild(str(copied), SHARDS, ".tfrecord")
    whole = list(refs_of(copied))
    recipe = ledger(copied)[0].recipe
    places = [ShardPlace("train", 1, 3), ShardPlace("train", 0, 1), ShardPlace("new", 0, 1)]
    for place in places:
        with PreviousRecords(build, plan_of(place=place, recipe=recipe), trust_mtime=True) as records:
            found = records.find(whole)
            assert found.keys() == {ref.key for ref, _ in whole}
            for entry in ledger(copied)[1]:
                assert entry.offset is not None and entry.length is not None
                frame = (copied / SHARD).read_bytes()[entry.offset : entry.offset + entry.length]
                known = found[entry.key]
                assert known.unchanged and known.entry == entry
                assert known.read_frame(entry.offset, entry.length) == frame and data_of(frame)


def test_records_of_another_recipe_digest_or_damaged_shard_are_not_found(copied: Path) -> None:
    build = PreviousBuild(str(copied), SHARDS, ".tfrecord")
    (ref, digest), *_ = refs_of(copied)
    recipe = ledger(copied)[0].recipe
    cases = {("other", digest): 0, (recipe, "other"): 0, (recipe, digest): 1}
    for (made, asked), count in cases.items():
        with PreviousRecords(build, plan_of(recipe=made), trust_mtime=True) as records:
            assert len(records.find([(ref, asked)])) == count
    with PreviousRecords(build, plan_of(recipe=recipe), trust_mtime=False) as records:
        assert not records.find([(ref, digest)])[ref.key].unchanged
    with PreviousRecords(build._replace(digests={SHARD: "0" * 64}), plan_of(recipe=recipe), True) as records:
        # The ledger belongs to another shard.
        assert not records.find([(ref, digest)]) and not records.rejected
    (copied / SHARD).unlink()
    with PreviousRecords(build, plan_of(recipe=recipe), trust_mtime=True) as records:
        assert not records.find([(ref, digest)]) and records.rejected == [SHARD]


def test_nothing_is_copied_from_a_changed_shard(copied: Path) -> None:
    last = ledger(copied)[1][-1]
    rewrite(copied, outcome="quarantined", reason="CORRUPT", stage="decode")
    build = PreviousBuild(str(copied), SHARDS, ".tfrecord")
    refs, recipe = list(refs_of(copied)), ledger(copied)[0].recipe
    with PreviousRecords(build, plan_of(recipe=recipe), trust_mtime=True) as records:
        assert records.find(refs).keys() == {ref.key for ref, _ in refs}
    assert last.offset is not None
    flip(copied / SHARD, last.offset + 20)  # a byte of one record; the CRCs of all others are still right
    verdicts: dict[str, bool] = {}
    for _ in range(2):
        with PreviousRecords(build, plan_of(recipe=recipe), True, verdicts=verdicts) as records:
            assert not records.find(refs) and records.rejected == [SHARD]
        assert verdicts == {SHARD: False}


@pytest.mark.parametrize(
    ("annotations", "known"),
    [
        (Annotations(), True),
        (Annotations(captions=('a "semantic_mask": b',)), True),
        (Annotations(semantic_mask="/m.png"), False),
        (Annotations(semantic_mask="/m.png", mask_size=3, mask_version="4"), True),
        (Annotations(panoptic_mask="/m.png", captions=('"mask_version":',)), False),
    ],
)
def test_a_mask_without_a_state_makes_the_images_state_unknown(annotations: Annotations, known: bool) -> None:
    ref = ImageRef("a", "/a", size=1, version="2").annotated(annotations)
    (ref,) = decode_refs(encode_refs([ref]))
    assert ref.has_known_state == known
    assert not ref._replace(size=-1).has_known_state and not ref._replace(version="").has_known_state


def test_outcomes_that_follow_from_the_bytes_are_reused() -> None:
    bad = Entry("a", "quarantined", reason="CORRUPT", stage="decode")
    assert can_stay(bad) and can_stay(bad._replace(reason="BAD_ANNOTATION", stage="build"))
    assert not can_stay(bad._replace(reason="UNREADABLE", stage="read"))
    assert not can_stay(bad._replace(reason="BAD_ANNOTATION", stage="read"))  # the mask may exist now


def test_neighbors_that_filled_an_empty_shard_are_searched_last() -> None:
    assert near(ShardPlace("train", 3, 8), 8) == [3, 2, 4, 1, 5, 0, 6, 7]
    assert near(ShardPlace("train", 0, 1), 3) == [0, 1, 2]
    assert near(ShardPlace("train", 50, 100), 200)[:2] == [100, 101]
