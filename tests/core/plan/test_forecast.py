"""The counts over all references, the shards that follow, and the way of references to shards and buckets."""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import make_tree
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from shardwright.core.concurrency.worker_pool import worker_pool
from shardwright.core.conversion import ShardRecipe
from shardwright.core.dedupe import first_of_equal, hash_sources, mark_copies
from shardwright.core.hash_buckets import bucket_of, pack_rows, unpack_rows
from shardwright.core.plan import assign, forecast
from shardwright.core.plan.assign import Placement, limit_order, shard_order
from shardwright.core.plan.request import ConversionRequest
from shardwright.schemas.codes import Outcome
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import LABEL_SEPARATOR, EncodedRefs, ImageRef, decode_refs, encode_refs
from shardwright.schemas.key_rules import KeyRules
from shardwright.schemas.layouts import CLASSIFICATION
from shardwright.schemas.plan import HASH_RANGE, Forecast, Plan
from shardwright.transforms import plan as transforms
from shardwright.transforms.plan import BatchRefs, SortBuffered

REFS = [
    ImageRef(
        f"c{i % 7}/{i:05d}.jpg",
        f"/in/c{i % 7}/{i:05d}.jpg",
        f"c{i % 7}",
        size=i,
        outcome="filtered" if i % 11 == 0 else "",
        reason="dotfile" if i % 11 == 0 else "",
    )
    for i in range(6 * forecast.SAMPLE_CANDIDATES)
]
BAD = [ImageRef(f"rows.csv:{i}", "/in/rows.csv").quarantined("BAD_ROW") for i in range(500)]
BY_LIMIT = sorted((ref for ref in REFS if ref.is_candidate), key=lambda ref: limit_order(0, ref.key))
BY_ORDER = sorted((ref for ref in REFS if ref.is_candidate), key=lambda ref: shard_order(0, ref.key))


def summarize(
    settings: ConvertSettings, seed: int, parts: int, listed: Sequence[ImageRef] = REFS
) -> forecast.RefSummary:
    """Adds all references, shuffled, to this many summaries, and merges these."""
    shuffler = random.Random(seed)
    refs = shuffler.sample(listed, len(listed))
    placement = Placement(settings)
    merged = forecast.RefSummary()
    for part in range(parts):
        summary = forecast.RefSummary()
        for ref in refs[part::parts]:
            summary.add(ref, placement)
        merged.merge(summary)
    return merged


def test_the_sample_has_the_lowest_hashes() -> None:
    settings = ConvertSettings(splits="train=0.8,test=0.2")
    summary = summarize(settings, seed=5, parts=50)
    assert [ref for _, ref in summary.sample.items] == BY_ORDER[: forecast.SAMPLE_CANDIDATES]
    assert sum(summary.candidates.values()) == len(BY_ORDER)
    assert sum(summary.listed.values()) == len(REFS)


@pytest.mark.parametrize("limit", [1, 100, 2500, len(BY_LIMIT), 10**6])
def test_a_limit_takes_the_lowest_hashes_and_leaves_out_bad_rows_beyond_them(limit: int) -> None:
    refs = random.Random(limit).sample([*REFS, *BAD], len(REFS) + len(BAD))
    batches, lowest, taken = batched(refs), assign.Lowest[None](limit), BY_LIMIT[:limit]
    for batch in batches:
        of_batch = assign.Lowest[None](limit)
        assign.add_orders(of_batch, batch, 0)
        lowest.merge(of_batch)
    found = [
        ref for batch in batches for ref in decode_refs(assign.filter_beyond_limit(batch, lowest.cut, 0))
    ]
    last = limit_order(0, taken[-1].key) if len(taken) == limit else (HASH_RANGE, "")
    assert {ref for ref in found if ref.is_candidate} == set(taken)
    assert found == [
        ref._replace(outcome="filtered", reason="limit")
        if ref.outcome != "filtered" and limit_order(0, ref.key) > last
        else ref
        for ref in refs
    ]


def test_classes_that_are_named_like_their_ids_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "take_sample", lambda *_: forecast.Sample(1, {}, 100.0, 100.0))
    settings = ConvertSettings(input=("in",))
    refs = [ImageRef(f"{i % 10}/{i}.jpg", f"/in/{i % 10}/{i}.jpg", str(i % 10), size=10) for i in range(20)]
    plan = forecast.make_forecast(ConversionRequest(settings), summarize(settings, 1, 1, refs)).plan
    assert (plan.labels, plan.unused_ids) == (tuple("0123456789"), ())


def test_a_split_without_objects_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "take_sample", lambda *_: forecast.Sample(1, {}, 100.0, 100.0))
    settings = ConvertSettings(input=("in",), layout="detection")
    refs = [
        ImageRef(f"{i}.jpg", f"/in/{i}.jpg", "cat" * (i == 3), "test" if i % 2 else "val") for i in range(9)
    ]
    made = forecast.make_forecast(ConversionRequest(settings), summarize(settings, 1, 1, refs))
    assert [warning[:43] for warning in made.warnings] == ["No image of val has an object with a class;"]


@pytest.mark.parametrize(
    "settings",
    [
        ConvertSettings(),
        ConvertSettings(splits="train=0.8,test=0.2", max_bytes="3kB"),
        ConvertSettings(splits="train=0.8,test=0.2", split_by="c[0-3]"),
    ],
)
def test_merged_parts_give_the_same_summary(settings: ConvertSettings) -> None:
    odd = [
        ImageRef("d/a.jpg", "/in/d/a.jpg", f"c1{LABEL_SEPARATOR}d", "test", size=-1),
        ImageRef("d/b.jpg", "/in/d/b.jpg", "", "train", group="g", size=5),
        ImageRef("e/c.jpg", "/in/e/c.jpg", "e").quarantined("EMPTY_FILE", "it is empty"),
    ]
    summaries = [summarize(settings, seed, parts, [*REFS, *BAD, *odd]) for seed, parts in ((1, 1), (2, 7))]
    assert summaries[0] == summaries[1]


@pytest.mark.parametrize(
    ("estimate", "records", "size", "shards"),
    [
        (0, 0, 100, 1),
        (0, 5, 100, 1),
        (100, 5, 100, 1),
        (101, 5, 100, 2),
        (10**9, 5, 100, 5),  # never more than records
        (1, 100_000, 100, 1),
        (1, 100_001, 100, 2),  # at most 100,000 records per shard
        (10**15, 10**9, 1, forecast.MAX_SHARDS),
    ],
)
def test_shard_counts_follow_from_sizes(estimate: int, records: int, size: int, shards: int) -> None:
    assert forecast.shard_count(estimate, records, size) == shards


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (100, 100, 4),
        (100, 199, 4),
        (100, 200, 9),
        (100, 51, 4),
        (100, 50, 9),
        (0, 0, 4),
        (0, 1, 9),
        (100, 0, 9),
        (101, 51, 4),
        (101, 50, 9),
    ],
)
def test_a_count_is_carried_until_the_size_doubles_or_halves(old: int, new: int, expected: int) -> None:
    assert forecast.carried_count(4, old, new, fresh=9) == expected


def test_bytes_are_estimated_from_sources_if_they_are_kept() -> None:
    sample = forecast.Sample(tried=4, faults={}, mean_bytes=300.0, mean_source_bytes=200.0)
    keep = ConvertSettings(image_format="keep")
    assert forecast.estimate_bytes(sample, records=10, source_bytes=5000, settings=keep) == 7500
    assert forecast.estimate_bytes(sample, 10, 5000, ConvertSettings(resize="9")) == 3000
    empty = forecast.Sample(tried=3, faults={"CORRUPT": 3}, mean_bytes=0.0, mean_source_bytes=0.0)
    assert forecast.estimate_bytes(empty, 10, 5000, keep) == 0


@pytest.mark.parametrize("in_processes", [False, True])
def test_a_sample_skips_faults_until_it_is_full(tmp_path: Path, in_processes: bool) -> None:
    refs = []
    for i in range(forecast.SAMPLE_IMAGES + 30):
        path = tmp_path / f"{i:03d}.png"
        if i % 4 == 0:
            path.write_bytes(b"")
        else:
            Image.new("RGB", (4, 4), (i, 0, 0)).save(path)
        refs.append(ImageRef(path.name, str(path), "c", size=path.stat().st_size))
    recipe = ShardRecipe(ConvertSettings(resize="4", image_format="raw"), CLASSIFICATION, {"c": 0})
    with worker_pool(in_processes):
        sample = forecast.take_sample(refs, recipe)
    assert sample.faults == {"EMPTY_FILE": sample.tried - forecast.SAMPLE_IMAGES}
    assert sample.tried == 86  # the 64th readable image is number 85
    assert 48 < sample.mean_bytes < 500


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "in", 16, ["class0", "class1"])


def plan_of(folder: Path, carried: Plan | None = None, count: int = 100, **settings: Any) -> Plan:
    """Returns the plan for the first files of a folder."""
    files = sorted(folder.glob("*/*"))[:count]
    # Splits follow from the keys, so these do not contain the folder of the test.
    refs = [ImageRef(path.name, str(path), "c", size=path.stat().st_size) for path in files]
    request = ConversionRequest(ConvertSettings(input=(str(folder),), **settings), carried=carried)
    return forecast.make_forecast(request, summarize(request.settings, 1, 1, refs)).plan


def test_a_split_that_has_no_fixed_number_of_shards_gets_more_of_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "MAX_RECORDS_PER_SHARD", 2)
    settings = {"splits": "train=0.5,test=0.5", "shards": "train=3"}
    before = plan_of(folder, count=4, **settings)
    after = plan_of(folder, before, **settings)
    assert after.shards == plan_of(folder, **settings).shards
    assert after.shards["train"] == before.shards["train"] == 3
    assert after.shards["test"] > before.shards["test"]


@pytest.mark.parametrize("limit", [0, 10_000])
def test_a_rejected_file_of_ten_gigabytes_adds_no_shards(folder: Path, limit: int) -> None:
    with open(folder / "class0" / "huge.jpg", "wb") as file:
        file.write(b"\xff\xd8\xff\xe0")
        file.truncate(10_000_000_000)  # it uses no block of the disk
    assert plan_of(folder, limit=limit).shards == {"train": 1}


def test_a_rejected_file_of_the_sample_adds_no_shards(folder: Path) -> None:
    before = plan_of(folder, shard_size="1MB")
    (folder / "class0" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0" + bytes(5_000_000))
    after = plan_of(folder, shard_size="1MB")
    assert before.shards == after.shards == {"train": 1}
    assert before.estimate == after.estimate


PLACED = [
    ImageRef(f"c/{i:05d}.jpg", f"/in/c/{i:05d}.jpg", "c", "" if i % 3 else "test", size=i)
    for i in range(5000)
]
SETTINGS = ConvertSettings(splits="train=0.5,test=0.5")
SHARDS = {"train": 5, "test": 3}


def batched(refs: Iterable[ImageRef]) -> list[EncodedRefs]:
    step = BatchRefs()
    step.start_bundle()
    batches = [batch for ref in refs for batch in step.process(ref)]
    return batches + [item.value for item in step.finish_bundle()]


def sort(
    placed: Callable[..., Any], batches: Iterable[EncodedRefs], *sides: object
) -> dict[assign.ShardId, list[EncodedRefs]]:
    step = SortBuffered(placed)
    step.start_bundle()
    elements = [item for batch in batches for item in step.process(batch, *sides)]
    elements += [item.value for item in step.finish_bundle()]
    groups: dict[assign.ShardId, list[EncodedRefs]] = {}
    for place, encoded in elements:
        groups.setdefault(place, []).append(encoded)
    return groups


@pytest.mark.parametrize("buffered", [1, 1500, 10**6])
def test_every_reference_gets_to_the_shard_of_its_hash(
    monkeypatch: pytest.MonkeyPatch, buffered: int
) -> None:
    monkeypatch.setattr(transforms, "BUFFERED_REFS", buffered)
    forecast = Forecast(Plan(("c",), SHARDS, {}, {}), {})
    groups = sort(partial(assign.refs_by_shard, SETTINGS), batched(PLACED), forecast)
    arrived = {place: [r for e in encoded for r in decode_refs(e)] for place, encoded in groups.items()}
    expected = Counter()
    for ref in PLACED:
        order = assign.shard_order(0, ref.key)
        split = ref.split or ("train" if assign.hash64(0, "split", ref.key) < HASH_RANGE // 2 else "test")
        expected[(split, assign.shard_of(order[0], SHARDS[split])), ref._replace(split=split)] += 1
    assert Counter((place, ref) for place, refs in arrived.items() for ref in refs) == expected
    assert max(map(len, groups.values())) <= (5 if buffered == 1 else 4 if buffered == 1500 else 1)


def test_equal_keys_meet_in_one_bucket_whatever_their_splits() -> None:
    again = [ref._replace(split="other", uri="/else/" + ref.key) for ref in PLACED[:7]]
    groups = sort(assign.keys_by_bucket, batched([*PLACED, *again]))
    arrived = [
        (ref.key, place) for place, packs in groups.items() for pack in packs for ref in decode_refs(pack)
    ]
    assert len(arrived) == len(PLACED) + len(again)
    assert len(set(arrived)) == len(PLACED), "each key has one bucket"
    with pytest.raises(UsageError, match=r"/else/c/0000\d.jpg and /in/c/0000\d.jpg"):
        for group in groups.items():
            list(assign.check_keys(group))
    assert sum(
        sum(assign.check_keys(group)) for group in sort(assign.keys_by_bucket, batched(PLACED)).items()
    ) == len(PLACED)


def test_keys_that_only_have_equal_hashes_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assign, "hash", len, raising=False)
    packed = [encode_refs(PLACED[:9]), encode_refs(PLACED[9:20])]
    assert list(assign.check_keys((("train", 0), packed))) == [20]
    uri = PLACED[3].uri
    says = {"/again": f"/again and {uri}; rename one", uri: f"{uri}; they are one image"}
    for place, sentence in says.items():
        with pytest.raises(UsageError, match=sentence):
            list(assign.check_keys((("train", 0), [*packed, encode_refs([PLACED[3]._replace(uri=place)])])))


def test_empty_shards_are_checked_too() -> None:
    assert list(assign.check_keys((("train", 0), [encode_refs(())]))) == [0]


def test_long_annotations_do_not_accumulate(monkeypatch: pytest.MonkeyPatch) -> None:
    heavy = [ref._replace(annotations=str(i) * 200_000) for i, ref in enumerate(PLACED[:12])]
    batches = batched(heavy)
    assert [len(list(decode_refs(batch))) for batch in batches] == [3, 3, 3, 2, 1]
    monkeypatch.setattr(transforms, "BUFFERED_REFS", 1000)
    step = SortBuffered(assign.keys_by_bucket)
    step.start_bundle()
    assert not list(step.process(batches[0]))  # keys are small, whatever their annotations
    forecast = Forecast(Plan(("c",), SHARDS, {}, {}), {})
    to_shards = SortBuffered(partial(assign.refs_by_shard, SETTINGS))
    to_shards.start_bundle()
    assert sum(len(list(decode_refs(refs))) for _, refs in to_shards.process(batches[0], forecast)) == 3


def test_images_fill_shards_that_would_be_empty() -> None:
    refs = [ImageRef(f"{i}.jpg", f"/in/{i}.jpg", "c", size=1) for i in range(12)]
    refs += [ImageRef(f"{i}.txt", f"/in/{i}.txt").filtered("not_an_image") for i in range(5)]
    shards = {"train": 12}
    plan = Plan(("c",), shards, {}, {})
    settings = ConvertSettings()
    forecast = Forecast(plan, {"train": 12})
    batches = [batch for some in (refs[:4], refs[4:]) for batch in batched(some)]
    packed = [item for batch in batches for item in assign.hashes_of_sparse_splits(batch, forecast, settings)]
    filled = assign.fill_shards(forecast, packed)
    usual = {ref.key: assign.shard_of(assign.shard_order(0, ref.key)[0], 12) for ref in refs}
    assert len({usual[ref.key] for ref in refs[:12]}) < 12
    groups = sort(partial(assign.refs_by_shard, settings), batched(refs), filled)
    found = {ref.key: shard for (_, shard), packs in groups.items() for e in packs for ref in decode_refs(e)}
    assert {found[ref.key] for ref in refs[:12]} == set(range(12))
    assert all(found[ref.key] == usual[ref.key] for ref in refs[12:])


def test_large_splits_are_not_read_again() -> None:
    forecast = Forecast(Plan(("c",), {"train": 5}, {}, {}), {"train": 5 * 64})
    assert not list(assign.hashes_of_sparse_splits(b"no references", forecast, ConvertSettings()))


#: Few checksums and keys with characters that order and encode differently, so that many meet.
_SHA256S = st.sampled_from([hashlib.sha256(bytes([number])).hexdigest() for number in range(4)])
_KEYS = st.text(st.sampled_from("ab/é\U0001f600\udc80￿"), min_size=1, max_size=3)


@given(st.dictionaries(_KEYS, _SHA256S, max_size=12))
def test_all_but_the_smallest_key_of_a_checksum_are_copies(images: dict[str, str]) -> None:
    refs = [ImageRef(key=key, uri=key, sha256=sha256) for key, sha256 in images.items()]
    keys = defaultdict(list)
    for ref in refs:
        keys[ref.sha256].append(ref.key)
    copied = dict(chain.from_iterable(first_of_equal((bytes.fromhex(one), keys[one])) for one in keys))
    for ref, marked in zip(refs, decode_refs(mark_copies(encode_refs(refs), copied)), strict=True):
        first = min(keys[ref.sha256])
        if ref.key == first:
            assert marked == ref
        else:
            assert marked == ref._replace(outcome=Outcome.DEDUPLICATED, reason=first)


def test_an_image_that_cannot_be_read_is_no_copy(tmp_path: Path) -> None:
    (tmp_path / "read").write_bytes(b"1")
    refs = [ImageRef(key=name, uri=str(tmp_path / name), size=1) for name in ("read", "missing")]
    hashed = decode_refs(hash_sources(encode_refs(refs), 100, KeyRules(), frozenset()))
    assert [*hashed] == [refs[0]._replace(sha256=hashlib.sha256(b"1").hexdigest()), refs[1]]


TEXTS = ["", "a", "\ud800", "00", "ff", "FF", " 0", "é0", "0a\n0"]
VALUES = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(TEXTS)


@example([(f"é{number}", number, None, "same") for number in range(500)])
@given(st.integers(0, 4).flatmap(lambda width: st.lists(st.tuples(*[VALUES] * width), max_size=6)))
def test_rows_keep_their_values_and_types(rows: list[tuple[Any, ...]]) -> None:
    unpacked = list(unpack_rows([pack_rows(rows)]))
    assert repr(unpacked) == repr(rows if rows and rows[0] else [])


def test_checksums_take_half_of_their_digits() -> None:
    rows = [(f"{number * 7**70 % 2**256:064x}",) for number in range(100)]
    assert len(pack_rows(rows)) < 100 * 33


@pytest.mark.parametrize("buckets", [1, 16, 4096])
def test_all_buckets_are_used(buckets: int) -> None:
    found = {bucket_of(f"class/{number}.jpg", buckets) for number in range(20 * buckets)}
    assert found == set(range(buckets))
