"""A worker takes its share of the machine, and a container's limit counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from shardwright.transforms import workers


@pytest.fixture(autouse=True)
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.os, "sched_getaffinity", lambda _: set(range(4)), raising=False)


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, 4),
        ({"cpu.max": "max 100000\n"}, 4),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "10000 100000\n"}, 1),
        ({"cpu.max": "900000 100000\n"}, 4),
        ({"cpu.max": "nonsense"}, 4),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
    ],
)
def test_a_container_s_limit_counts(tmp_path: Path, files: dict[str, str], cpus: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert workers.usable_cpus(tmp_path) == cpus


@pytest.mark.parametrize(
    ("options", "threads"),
    [
        ([], 4),
        (["--direct_running_mode=multi_processing", "--direct_num_workers=2"], 3),
        (["--direct_running_mode=multi_processing", "--direct_num_workers=0"], 2),
        (["--direct_num_workers=8"], 4),
        (["--runner=FlinkRunner", "--sdk_worker_parallelism=2"], 3),
        (["--runner=FlinkRunner", "--sdk_worker_parallelism=0"], 2),
        (["--runner=DataflowRunner"], 2),
        (["--runner=DataflowRunner", "--experiments=no_use_multiple_sdk_containers"], 4),
    ],
)
def test_the_processes_of_a_machine_share_its_processors(
    monkeypatch: pytest.MonkeyPatch, options: list[str], threads: int
) -> None:
    monkeypatch.setattr(workers, "usable_cpus", lambda: 4)
    monkeypatch.setattr(FileSystems, "_pipeline_options", PipelineOptions(options))
    assert workers.worker_threads() == threads
