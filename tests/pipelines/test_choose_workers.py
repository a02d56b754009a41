"""Several processes are used if they are faster; the metrics of a run are those of its images."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import DirectOptions
from helpers.hostile import make_tree
from helpers.repository import PHOTOS

from shardwright.pipelines import workers
from shardwright.pipelines.options import beam_options
from shardwright.pipelines.results import ConvertResult
from shardwright.pipelines.workers import (
    LastRun,
    Workers,
    Workload,
    busiest_share,
    choose_processes,
    cost_of_image,
    seconds_gained,
    set_workers,
    workers_named,
)
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.conversion_speed import ConversionSpeed
from shardwright.transforms.sources.inputs import Input


def _chosen(given: list[str] | None, last: LastRun | None = None, **settings: Any) -> Workers:
    """Chooses workers for the 61 pictures as a command does."""
    options = beam_options(given or [], ())
    checked = ConvertSettings(input=(str(PHOTOS),), **settings)
    processes = choose_processes(given, [Input(str(PHOTOS), "")], checked, last or LastRun())
    chosen = set_workers(processes, options)
    several = options.view_as(DirectOptions).direct_running_mode == "multi_processing"
    assert several == (chosen.processes > 1)
    return chosen


@pytest.mark.parametrize(
    ("given", "cpus", "start_seconds", "processes"),
    [
        ([], 8, workers.START_SECONDS, 1),  # 61 pictures
        ([], 1, -1.0, 1),
        ([], 64, -1.0, 64),
        (["--no_auth"], 64, -1.0, 64),
        (["--direct_running_mode=in_memory"], 64, -1.0, 1),
        (["--direct_num_workers=1"], 64, -1.0, 1),
        (["--direct_running_mode=multi_processing", "--direct_num_workers=3"], 64, 0.0, 3),
        (["--runner=PrismRunner"], 64, -1.0, 0),
        (None, 64, -1.0, 1),  # options given as an object are not changed
    ],
)
def test_processes_are_chosen_if_they_are_faster(
    monkeypatch: pytest.MonkeyPatch,
    given: list[str] | None,
    cpus: int,
    start_seconds: float,
    processes: int,
) -> None:
    monkeypatch.setattr(workers, "usable_cpus", lambda: cpus)
    monkeypatch.setattr(workers, "START_SECONDS", start_seconds)
    assert _chosen(given, shards="64").processes == processes


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (None, 0),
        ([], None),
        (["--no_auth"], None),
        (["--direct_num_workers=4"], 0),
        (["--direct-running-mode=multi_processing", "--direct-num-workers=4"], 4),
        (["--direct_running_mode=multi_processing", "--direct_num_workers=4"], 4),
        (["--direct_running_mode=multi_processing", "--direct_num_workers=x"], 0),
        (["--direct_running_mode=multi_processing", "--runner=PrismRunner"], 0),
    ],
)
def test_workers_are_named_by_beams_options(given: list[str] | None, named: int | None) -> None:
    assert workers_named(given) == named


@pytest.mark.parametrize(
    ("load", "cpus", "several"),
    [
        (Workload(50_000, 50_000 * 31_000), 2, False),  # two threads are enough
        (Workload(50_000, 50_000 * 31_000), 4, True),
        (Workload(50_000, 50_000 * 1_300), 2, True),  # small images hardly do anything without the lock
        (Workload(3_000, 3_000 * 31_000), 8, False),  # finished before the processes would have started
        (Workload(50_000, 50_000 * 4_000_000), 32, False),  # large pictures hold the lock only briefly
        (Workload(10_000, 10_000 * 31_000, 10_000), 4, True),  # reading from a network holds it longer
        (Workload(0, 0), 16, False),  # a rebuild with nothing to convert
    ],
)
def test_the_model_estimates_the_speed(load: Workload, cpus: int, several: bool) -> None:
    cost = cost_of_image(load)
    assert (seconds_gained(load.files, cost, cpus, 1 / cpus) > 0) == several
    assert seconds_gained(load.files, cost, cpus, 1.0) <= 0, "one process alone is never faster"


def test_more_threads_are_never_slower_and_the_lock_limits_them() -> None:
    lock, free = 0.3, 0.7
    times = [workers._thread_seconds(lock, free, threads) for threads in range(1, 65)]
    assert times[0] == pytest.approx(lock + free)
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(times))
    assert times[-1] == pytest.approx(lock)
    assert times[1] > (lock + free) / 2, "two threads wait for each other"


@pytest.mark.parametrize(
    ("sizes", "processes", "share"),
    [
        ([], 4, 0.25),  # enough for all
        ([5.0], 4, 1.0),
        ([1.0, 1.0, 1.0], 2, 2 / 3),
        ([8.0, 1.0, 1.0], 3, 0.8),
        ([1.0] * 64, 16, 1 / 16),
    ],
)
def test_a_shard_is_converted_by_one_process(sizes: list[float], processes: int, share: float) -> None:
    assert busiest_share(sizes, processes) == pytest.approx(share)


@pytest.mark.parametrize(
    ("settings", "shards", "expected"),
    [
        ({"resize": "224"}, {}, [1.0]),  # 50,000 small images are one shard of 128 MB
        ({"resize": "224", "shard_size": "160MB"}, {}, [0.25] * 4),
        ({"resize": "224", "shards": "8"}, {}, [1 / 8] * 8),
        ({"splits": "train=0.5,test=0.5", "shards": "train=2,test=1"}, {}, [0.25, 0.25, 0.5]),
        ({}, {"train": 4}, [0.25] * 4),
        ({}, {"left": 1, "right": 1}, [1.0, 0.5, 0.5]),
    ],
)
def test_the_sizes_of_shards_are_estimated(
    settings: dict[str, str], shards: dict[str, int], expected: list[float]
) -> None:
    load = Workload(50_000 if "resize" in settings else 1000, 75_000_000)
    checked = ConvertSettings(**{"shard_size": "1GB", **settings})
    assert workers._shard_sizes(load, checked, LastRun(shards=shards)) == pytest.approx(expected)


def test_many_shards_are_assumed_if_not_all_files_were_counted() -> None:
    load = Workload(1000, 1000, is_part=True)
    assert workers._shard_sizes(load, ConvertSettings(), LastRun()) == []


def test_the_speed_of_the_last_run_replaces_the_estimate() -> None:
    load = Workload(50_000, 50_000 * 31_000)
    usual = cost_of_image(load)
    assert cost_of_image(load, ConversionSpeed(sum(usual), 31_000.0)) == pytest.approx(usual)
    slow = ConversionSpeed(20e-3, 31_000.0)
    assert cost_of_image(load, slow) == pytest.approx((usual.lock, 20e-3 - usual.lock)), "a slow codec"
    assert seconds_gained(load.files, cost_of_image(load, slow), 16, 1 / 16) < 0, "threads do not wait for it"
    assert cost_of_image(load, slow, mapped=True) == pytest.approx((20e-3 - usual.free, usual.free))
    assert seconds_gained(load.files, cost_of_image(load, slow, mapped=True), 16, 1 / 16) > 0
    fast = cost_of_image(load, ConversionSpeed(sum(usual) / 2, 31_000.0))
    assert fast == pytest.approx([part / 2 for part in usual])
    larger = cost_of_image(Workload(50_000, 50_000 * 62_000), slow)
    assert sum(larger) == pytest.approx(20e-3 + 31_000 * workers.SECONDS_PER_BYTE)
    assert sum(cost_of_image(Workload(10, 10), ConversionSpeed(1e-3, 1e9))) == pytest.approx(0.5e-3)


def test_only_files_that_changed_since_the_last_run_count(tmp_path: Path) -> None:
    make_tree(tmp_path / "in", 20)
    inputs = [Input(str(tmp_path / "in"), "")]
    load = workers._files_to_convert(inputs, None)
    sizes = [path.stat().st_size for path in (tmp_path / "in").rglob("*") if path.is_file()]
    assert load == Workload(len(sizes), sum(sizes))
    since = max(path.stat().st_ctime for path in (tmp_path / "in").rglob("*") if path.is_file()) + 0.001
    assert workers._files_to_convert(inputs, since) == Workload(0, 0)
    moved = next(path for path in (tmp_path / "in").rglob("*") if path.is_file())
    while moved.stat().st_ctime < since:
        moved.write_bytes(b"1234")
        os.utime(moved, (1, 1))  # as `cp -p` and rsync do
    assert workers._files_to_convert(inputs, since) == Workload(1, 4)


def test_a_stored_speed_is_read_again_unless_it_is_damaged() -> None:
    speed = ConversionSpeed(0.001, 1000.0)
    assert ConversionSpeed.from_json(speed.as_json()) == speed
    damaged = (
        None, 7, {}, {"processor_seconds": 0, "bytes": 1}, {"processor_seconds": "x", "bytes": 1},
        {"processor_seconds": 1e999, "bytes": 1}, {"processor_seconds": 1, "bytes": -1},
    )  # fmt: skip
    for value in damaged:
        assert ConversionSpeed.from_json(value) is None


def test_the_summary_has_the_metrics_of_the_run(
    convert_photos: Callable[..., ConvertResult], tmp_path: Path
) -> None:
    result = convert_photos(resize=32, splits="train=0.8,test=0.2")
    sizes = [path.stat().st_size for path in PHOTOS.rglob("*") if path.is_file()]
    assert result.metrics["images_read"] == len(sizes) == result.metrics["source_bytes"]["count"]
    assert result.metrics["bytes_read"] == sum(sizes)
    assert result.metrics["source_bytes"]["max"] == max(sizes)
    for split in ("train", "test"):
        assert result.metrics[f"records_{split}"] == result.dataset.records(split)
    written = sum(shard.bytes for shards in result.dataset.splits.values() for shard in shards)
    assert result.metrics["bytes_written"] == written
    assert 0 < result.metrics["decode_us"]["min"] <= result.metrics["decode_us"]["mean"]
    assert "thread" in result.run["workers"]["text"]
