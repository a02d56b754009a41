"""Several processes are used if they are faster; the metrics of a run are those of its images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import DirectOptions
from helpers.repository import PHOTOS

from shardwright.pipelines import workers
from shardwright.pipelines.options import beam_options
from shardwright.pipelines.results import ConvertResult
from shardwright.pipelines.workers import Workload, choose_workers, seconds_gained
from shardwright.transforms.sources.inputs import Input


@pytest.mark.parametrize(
    ("given", "cpus", "start_seconds", "processes"),
    [
        ([], 8, 5.0, 1),  # 61 pictures
        ([], 1, 0.0, 1),
        ([], 64, 0.0, 64),
        (["--direct_running_mode=in_memory"], 64, 0.0, 1),
        (["--direct_num_workers=1"], 64, 0.0, 1),
        (["--direct_running_mode=multi_processing", "--direct_num_workers=3"], 64, 0.0, 3),
        (["--runner=PrismRunner"], 64, 0.0, 0),
    ],
)
def test_processes_are_chosen_if_they_are_faster(
    monkeypatch: pytest.MonkeyPatch, given: list[str], cpus: int, start_seconds: float, processes: int
) -> None:
    monkeypatch.setattr(workers, "usable_cpus", lambda: cpus)
    monkeypatch.setattr(workers, "START_SECONDS", start_seconds)
    options = beam_options(given, ())
    chosen = choose_workers(given, options, [Input(str(PHOTOS), "")])
    assert chosen.processes == processes
    several = options.view_as(DirectOptions).direct_running_mode == "multi_processing"
    assert several == (processes > 1)


@pytest.mark.parametrize(
    ("load", "cpus", "several"),
    [
        (Workload(50_000, 50_000 * 31_000, 0), 2, False),  # two threads are enough
        (Workload(50_000, 50_000 * 31_000, 0), 4, True),
        (Workload(3_000, 3_000 * 31_000, 0), 8, False),  # finished before the processes would have started
        (Workload(50_000, 50_000 * 4_000_000, 0), 32, False),  # large pictures hold the lock only briefly
        (Workload(10_000, 10_000 * 31_000, 10_000), 4, True),  # reading from a network holds it longer
    ],
)
def test_the_model_estimates_the_speed(load: Workload, cpus: int, several: bool) -> None:
    assert (seconds_gained(load, cpus) > workers.START_SECONDS) == several


def test_options_given_as_an_object_are_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "usable_cpus", lambda: 64)
    monkeypatch.setattr(workers, "START_SECONDS", 0.0)
    assert choose_workers(None, beam_options([], ()), [Input(str(PHOTOS), "")]).processes == 1


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
