"""The number of shards of a split, and when it is chosen again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.layouts import CLASSIFICATION
from shardwright.transforms.concurrency.converters import converters
from shardwright.transforms.conversion.convert import ShardRecipe
from shardwright.transforms.plan.estimate import (
    MAX_RECORDS_PER_SHARD,
    MAX_SHARDS,
    SAMPLE_IMAGES,
    Sample,
    carried_count,
    estimate_bytes,
    shard_count,
    take_sample,
)


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


@given(st.integers(0, 10**15), st.integers(0, 10**9), st.integers(1, 10**10))
def test_shard_counts_obey_their_limits(estimate: int, records: int, size: int) -> None:
    shards = shard_count(estimate, records, size)
    assert 1 <= shards <= max(1, min(records, MAX_SHARDS))
    if shards < min(records, MAX_SHARDS):
        assert shards * size >= estimate
        assert shards * MAX_RECORDS_PER_SHARD >= records


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
    assert empty.readable == 0
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
    with converters(in_processes):
        sample = take_sample(refs, recipe)
    assert sample.readable == SAMPLE_IMAGES
    assert sample.faults == {"EMPTY_FILE": sample.tried - SAMPLE_IMAGES}
    assert sample.tried == 86  # the 64th readable image is number 85
    assert 48 < sample.mean_bytes < 500
