"""References on their way to shards and buckets: none is lost or doubled, and equal keys meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from shardwright.core.plan import assign
from shardwright.core.plan.assign import (
    ShardId,
    check_keys,
    fill_shards,
    hash64,
    hashes_of_sparse_splits,
    keys_by_bucket,
    limit_order,
    refs_by_shard,
    shard_of,
    shard_order,
)
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import EncodedRefs, ImageRef, decode_refs, encode_refs
from shardwright.schemas.plan import HASH_RANGE, Forecast, Plan
from shardwright.transforms import plan as transforms
from shardwright.transforms.plan import BatchRefs, SortBuffered

REFS = [
    ImageRef(f"c/{i:05d}.jpg", f"/in/c/{i:05d}.jpg", "c", "" if i % 3 else "test", size=i)
    for i in range(5000)
]
SETTINGS = ConvertSettings(splits="train=0.5,test=0.5")
SHARDS = {"train": 5, "test": 3}


def batched(refs: Sequence[ImageRef]) -> list[EncodedRefs]:
    return [encode_refs(refs[first : first + 1000]) for first in range(0, len(refs), 1000)]


def sort(
    placed: Callable[..., Any], batches: Iterable[EncodedRefs], *sides: object
) -> dict[ShardId, list[EncodedRefs]]:
    step = SortBuffered(placed)
    step.start_bundle()
    elements = [item for batch in batches for item in step.process(batch, *sides)]
    elements += [item.value for item in step.finish_bundle()]
    groups: dict[ShardId, list[EncodedRefs]] = {}
    for place, encoded in elements:
        groups.setdefault(place, []).append(encoded)
    return groups


@pytest.mark.parametrize("buffered", [1, 1500, 10**6])
@pytest.mark.parametrize("limit", [0, 1234])
def test_every_reference_gets_to_the_shard_of_its_hash(
    monkeypatch: pytest.MonkeyPatch, buffered: int, limit: int
) -> None:
    monkeypatch.setattr(transforms, "BUFFERED_REFS", buffered)
    orders = sorted(limit_order(0, ref.key) for ref in REFS)
    cut = orders[limit - 1] if limit else None
    forecast = Forecast(Plan(("c",), SHARDS, {}, {}), {}, {}, {}, 0, 0, {}, 0, {}, limit_cut=cut)
    groups = sort(partial(refs_by_shard, SETTINGS), batched(REFS), forecast)
    arrived = {place: [r for e in encoded for r in decode_refs(e)] for place, encoded in groups.items()}
    expected = Counter()
    for ref in REFS:
        order = shard_order(0, ref.key)
        split = ref.split or ("train" if hash64(0, "split", ref.key) < HASH_RANGE // 2 else "test")
        beyond = cut is not None and limit_order(0, ref.key) > cut
        placed = ref._replace(split=split)
        placed = placed._replace(outcome="filtered", reason="limit") if beyond else placed
        expected[(split, shard_of(order[0], SHARDS[split])), placed] += 1
    assert Counter((place, ref) for place, refs in arrived.items() for ref in refs) == expected
    assert max(map(len, groups.values())) <= (5 if buffered == 1 else 4 if buffered == 1500 else 1)


def test_equal_keys_meet_in_one_bucket_whatever_their_splits() -> None:
    again = [ref._replace(split="other", uri="/else/" + ref.key) for ref in REFS[:7]]
    groups = sort(keys_by_bucket, batched([*REFS, *again]))
    places: dict[str, set[ShardId]] = {}
    count = 0
    for place, encoded in groups.items():
        for ref in (ref for item in encoded for ref in decode_refs(item)):
            places.setdefault(ref.key, set()).add(place)
            count += 1
    assert count == len(REFS) + len(again)
    assert all(len(found) == 1 for found in places.values())
    with pytest.raises(UsageError, match=r"/else/c/0000\d.jpg and /in/c/0000\d.jpg"):
        for group in groups.items():
            list(check_keys(group))
    assert sum(sum(check_keys(group)) for group in sort(keys_by_bucket, batched(REFS)).items()) == len(REFS)


def test_keys_that_only_have_equal_hashes_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assign, "hash", len, raising=False)
    packed = [encode_refs(REFS[:9]), encode_refs(REFS[9:20])]
    assert list(check_keys((("train", 0), packed))) == [20]
    uri = REFS[3].uri
    says = {"/again": f"/again and {uri}; rename one", uri: f"{uri}; they are one image"}
    for place, sentence in says.items():
        with pytest.raises(UsageError, match=sentence):
            list(check_keys((("train", 0), [*packed, encode_refs([REFS[3]._replace(uri=place)])])))


def test_empty_shards_are_checked_too() -> None:
    assert list(check_keys((("train", 0), [encode_refs(())]))) == [0]


def test_long_annotations_do_not_accumulate(monkeypatch: pytest.MonkeyPatch) -> None:
    heavy = [ref._replace(annotations=str(i) * 200_000) for i, ref in enumerate(REFS[:12])]
    with beam.Pipeline() as pipeline:
        batches = pipeline | beam.Create(heavy, reshuffle=False) | BatchRefs()
        sizes = batches | beam.Map(lambda batch: len(list(decode_refs(batch))))
        assert_that(sizes, equal_to([2, 2, 2, 2, 2, 1, 1]))
    three = encode_refs(heavy[:3])
    monkeypatch.setattr(transforms, "BUFFERED_REFS", 1000)
    step = SortBuffered(keys_by_bucket)
    step.start_bundle()
    assert not list(step.process(three))  # keys are small, whatever their annotations
    forecast = Forecast(Plan(("c",), SHARDS, {}, {}), {}, {}, {}, 0, 0, {}, 0, {})
    assign = SortBuffered(partial(refs_by_shard, SETTINGS))
    assign.start_bundle()
    assert sum(len(list(decode_refs(refs))) for _, refs in assign.process(three, forecast)) == 3


def test_images_fill_shards_that_would_be_empty() -> None:
    refs = [ImageRef(f"{i}.jpg", f"/in/{i}.jpg", "c", size=1) for i in range(12)]
    refs += [ImageRef(f"{i}.txt", f"/in/{i}.txt").filtered("not_an_image") for i in range(5)]
    shards = {"train": 12}
    plan = Plan(("c",), shards, {}, {})
    settings = ConvertSettings()
    forecast = Forecast(plan, {"train": 12}, {}, {}, 0, 0, {}, 0, {})
    batches = [batch for some in (refs[:4], refs[4:]) for batch in batched(some)]
    packed = [item for batch in batches for item in hashes_of_sparse_splits(batch, forecast, settings)]
    filled = fill_shards(forecast, packed)
    usual = {ref.key: shard_of(shard_order(0, ref.key)[0], 12) for ref in refs}
    assert len({usual[ref.key] for ref in refs[:12]}) < 12
    groups = sort(partial(refs_by_shard, settings), batched(refs), filled)
    found = {ref.key: shard for (_, shard), packs in groups.items() for e in packs for ref in decode_refs(e)}
    assert {found[ref.key] for ref in refs[:12]} == set(range(12))
    assert all(found[ref.key] == usual[ref.key] for ref in refs[12:])


def test_large_splits_are_not_read_again() -> None:
    forecast = Forecast(Plan(("c",), {"train": 5}, {}, {}), {"train": 5 * 64}, {}, {}, 0, 0, {}, 0, {})
    assert not list(hashes_of_sparse_splits(b"no references", forecast, ConvertSettings()))
