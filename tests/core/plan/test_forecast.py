"""The counts over all references, whatever their order, and the shards that follow from them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from shardwright.core.concurrency.worker_pool import worker_pool
from shardwright.core.conversion import ShardRecipe
from shardwright.core.plan import forecast
from shardwright.core.plan.assign import Placement, limit_order, shard_order
from shardwright.core.plan.forecast import (
    MAX_SHARDS,
    SAMPLE_CANDIDATES,
    SAMPLE_IMAGES,
    RefSummary,
    Sample,
    carried_count,
    estimate_bytes,
    shard_count,
    take_sample,
)
from shardwright.core.plan.request import ConversionRequest
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import LABEL_SEPARATOR, ImageRef
from shardwright.schemas.layouts import CLASSIFICATION
from shardwright.schemas.plan import Plan

REFS = [
    ImageRef(
        f"c{i % 7}/{i:05d}.jpg",
        f"/in/c{i % 7}/{i:05d}.jpg",
        f"c{i % 7}",
        size=i,
        outcome="filtered" if i % 11 == 0 else "",
        reason="dotfile" if i % 11 == 0 else "",
    )
    for i in range(6 * SAMPLE_CANDIDATES)
]
BAD = [ImageRef(f"rows.csv:{i}", "/in/rows.csv").quarantined("BAD_ROW") for i in range(500)]
BY_LIMIT = sorted((ref for ref in REFS if ref.is_candidate), key=lambda ref: limit_order(0, ref.key))
BY_ORDER = sorted((ref for ref in REFS if ref.is_candidate), key=lambda ref: shard_order(0, ref.key))


def summarize(
    settings: ConvertSettings, seed: int, parts: int, listed: Sequence[ImageRef] = REFS
) -> RefSummary:
    """Adds all references, shuffled, to this many summaries, and merges these."""
    shuffler = random.Random(seed)
    refs = shuffler.sample(listed, len(listed))
    placement = Placement(settings)
    merged = RefSummary(settings)
    for part in range(parts):
        summary = RefSummary(settings)
        for ref in refs[part::parts]:
            summary.add(ref, placement)
        if shuffler.random() < 0.5:
            summary.trim()
        merged.merge(summary)
    return merged


def test_the_sample_has_the_lowest_hashes() -> None:
    settings = ConvertSettings(splits="train=0.8,test=0.2")
    summary = summarize(settings, seed=5, parts=50)
    assert summary.finish() is None
    assert [ref for _, ref in summary.sample.items] == BY_ORDER[:SAMPLE_CANDIDATES]
    assert sum(summary.candidates.values()) == len(BY_ORDER)
    assert sum(summary.listed.values()) == len(REFS)


@pytest.mark.parametrize("limit", [1, 100, SAMPLE_CANDIDATES, 2500, len(BY_ORDER), 10**6])
def test_a_limit_takes_the_lowest_hashes(limit: int) -> None:
    settings = ConvertSettings(splits="train=0.8,test=0.2", limit=limit)
    summary = summarize(settings, seed=limit, parts=7)
    cut = summary.finish()
    taken = BY_LIMIT[:limit]
    assert cut == (limit_order(0, taken[-1].key) if len(taken) == limit else None)
    assert sum(summary.candidates.values()) == len(taken)
    assert sum(summary.source_bytes.values()) == sum(ref.size for ref in taken)
    assert [ref for _, ref in summary.sample.items] == taken[:SAMPLE_CANDIDATES]


@pytest.mark.parametrize("limit", [1, 700, 10**6])
def test_a_limit_also_leaves_out_bad_rows_beyond_it(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(forecast, "take_sample", lambda *_: Sample(1, {}, 100.0, 100.0))
    settings = ConvertSettings(input=("in",), limit=limit)
    summary = summarize(settings, limit, 7, [*REFS, *BAD])
    made = forecast.make_forecast(ConversionRequest(settings), summary)
    cut = made.limit_cut
    orders = [limit_order(0, ref.key) for ref in (*BAD, *BY_ORDER)]
    assert made.filtered.get("limit", 0) == sum(cut is not None and order > cut for order in orders)
    assert sum(made.candidates.values()) == min(limit, len(BY_ORDER))


def test_classes_that_are_named_like_their_ids_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "take_sample", lambda *_: Sample(1, {}, 100.0, 100.0))
    settings = ConvertSettings(input=("in",))
    refs = [ImageRef(f"{i % 10}/{i}.jpg", f"/in/{i % 10}/{i}.jpg", str(i % 10), size=10) for i in range(20)]
    plan = forecast.make_forecast(ConversionRequest(settings), summarize(settings, 1, 1, refs)).plan
    assert (plan.labels, plan.unused_ids) == (tuple("0123456789"), ())


def test_a_split_without_objects_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "take_sample", lambda *_: Sample(1, {}, 100.0, 100.0))
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
        ConvertSettings(limit=700),
    ],
)
def test_merged_parts_give_the_same_summary(settings: ConvertSettings) -> None:
    odd = [
        ImageRef("d/a.jpg", "/in/d/a.jpg", f"c1{LABEL_SEPARATOR}d", "test", size=-1),
        ImageRef("d/b.jpg", "/in/d/b.jpg", "", "train", group="g", size=5),
        ImageRef("e/c.jpg", "/in/e/c.jpg", "e").quarantined("EMPTY_FILE", "it is empty"),
    ]
    summaries = [summarize(settings, seed, parts, [*REFS, *BAD, *odd]) for seed, parts in ((1, 1), (2, 7))]
    for summary in summaries:
        summary.trim()
        summary.bad.sort()
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
        (10**15, 10**9, 1, MAX_SHARDS),
    ],
)
def test_shard_counts_follow_from_sizes(estimate: int, records: int, size: int, shards: int) -> None:
    assert shard_count(estimate, records, size) == shards


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
    assert carried_count(4, old, new, fresh=9) == expected


def test_bytes_are_estimated_from_sources_if_they_are_kept() -> None:
    sample = Sample(tried=4, faults={}, mean_bytes=300.0, mean_source_bytes=200.0)
    keep = ConvertSettings(image_format="keep")
    assert estimate_bytes(sample, records=10, source_bytes=5000, settings=keep) == 7500
    assert estimate_bytes(sample, 10, 5000, ConvertSettings(resize="9")) == 3000
    empty = Sample(tried=3, faults={"CORRUPT": 3}, mean_bytes=0.0, mean_source_bytes=0.0)
    assert estimate_bytes(empty, 10, 5000, keep) == 0


@pytest.mark.parametrize("in_processes", [False, True])
def test_a_sample_skips_faults_until_it_is_full(tmp_path: Path, in_processes: bool) -> None:
    refs = []
    for i in range(SAMPLE_IMAGES + 30):
        path = tmp_path / f"{i:03d}.png"
        if i % 4 == 0:
            path.write_bytes(b"")
        else:
            Image.new("RGB", (4, 4), (i, 0, 0)).save(path)
        refs.append(ImageRef(path.name, str(path), "c", size=path.stat().st_size))
    recipe = ShardRecipe(ConvertSettings(resize="4", image_format="raw"), CLASSIFICATION, {"c": 0})
    with worker_pool(in_processes):
        sample = take_sample(refs, recipe)
    assert sample.faults == {"EMPTY_FILE": sample.tried - SAMPLE_IMAGES}
    assert sample.tried == 86  # the 64th readable image is number 85
    assert 48 < sample.mean_bytes < 500


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(16):
        path = tmp_path / "in" / f"class{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (number, 0, 0)).save(path)
    return tmp_path / "in"


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
