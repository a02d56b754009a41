"""A worker uses its share of the machine, and a container's limits apply."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.trees import put_files

from shardwright.core.concurrency import resources, thread_pool


@pytest.fixture(autouse=True)
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources.os, "sched_getaffinity", lambda _: set(range(4)), raising=False)


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, 4),
        ({"cpu.max": b"max 100000\n"}, 4),
        ({"cpu.max": b"200000 100000\n"}, 2),
        ({"cpu.max": b"150000 100000\n"}, 2),
        ({"cpu.max": b"10000 100000\n"}, 1),
        ({"cpu.max": b"900000 100000\n"}, 4),
        ({"cpu.max": b"nonsense"}, 4),
        ({"cpu/cpu.cfs_quota_us": b"-1\n", "cpu/cpu.cfs_period_us": b"100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": b"300000\n", "cpu/cpu.cfs_period_us": b"100000\n"}, 3),
    ],
)
def test_a_containers_limit_of_processors_applies(tmp_path: Path, files: dict[str, bytes], cpus: int) -> None:
    put_files(tmp_path, files)
    assert resources.usable_cpus(tmp_path) == cpus


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
    monkeypatch.setattr(resources, "usable_cpus", lambda: 4)
    monkeypatch.setattr(FileSystems, "_pipeline_options", PipelineOptions(options))
    assert resources.worker_threads() == threads


@pytest.mark.parametrize(
    ("files", "memory"),
    [
        ({}, 8_000_000_000),
        ({"memory.max": b"max\n"}, 8_000_000_000),
        ({"memory.max": b"2000000000\n"}, 2_000_000_000),
        ({"memory.max": b"9000000000\n"}, 8_000_000_000),
        ({"memory.max": b"nonsense"}, 8_000_000_000),
        ({"memory/memory.limit_in_bytes": b"3000000000\n"}, 3_000_000_000),
        ({"memory/memory.limit_in_bytes": b"9223372036854771712\n"}, 8_000_000_000),
    ],
)
def test_a_containers_limit_of_memory_applies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes], memory: int
) -> None:
    sizes = {"SC_PHYS_PAGES": 2_000_000, "SC_PAGE_SIZE": 4000}
    monkeypatch.setattr(os, "sysconf", lambda name: sizes[name])
    put_files(tmp_path, files)
    assert resources.usable_memory(tmp_path) == memory


@pytest.mark.parametrize(
    ("gigabytes", "processes", "megabytes"),
    [(16, 4, 256), (4, 4, 125), (2, 4, 64), (1, 4, 64), (2, 1, 250), (64, 1, 256)],
)
def test_the_processes_of_a_machine_share_its_memory(
    monkeypatch: pytest.MonkeyPatch, gigabytes: int, processes: int, megabytes: int
) -> None:
    monkeypatch.setattr(thread_pool, "usable_memory", lambda: gigabytes * 10**9)
    monkeypatch.setattr(thread_pool, "worker_processes", lambda: processes)
    budget = thread_pool.working_budget.__wrapped__()
    assert budget.limit == megabytes * 10**6
    assert bool(budget._lock_file) == (processes > 1)
