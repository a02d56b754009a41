"""Threads: order, bounds and exceptions, the byte budget, and the share of the machine that they use."""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from helpers.repository import ran
from helpers.trees import put_files
from hypothesis import given
from hypothesis import strategies as st

from shardwright.core.concurrency import resources, thread_pool
from shardwright.core.concurrency.thread_pool import CHUNK_ITEMS, ByteBudget, each, merge_streams, ordered_map


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


def _map(function, items, executor, weigh=lambda item: 1, max_items=64, max_weight=10**6):
    limits = {"max_items": max_items, "max_weight": max_weight}
    return ordered_map(each(function), items, executor, weigh=weigh, **limits)


def _of_weights(function, weights, executor, **limits):
    """Maps the numbers of some items with these weights, in chunks."""
    return ordered_map(function, range(len(weights)), executor, weigh=weights.__getitem__, **limits)


def test_results_come_in_the_order_of_the_items(executor: ThreadPoolExecutor) -> None:
    rng = random.Random(1)
    pauses = [rng.random() / 500 for _ in range(300)]

    def work(index: int) -> int:
        time.sleep(pauses[index])
        return index

    assert list(_map(work, range(300), executor)) == list(range(300))
    assert list(_map(work, [], executor)) == []


def test_a_function_gets_the_items_of_a_chunk_together(executor: ThreadPoolExecutor) -> None:
    chunks: list[list[int]] = []

    def double(chunk: list[int]) -> list[int]:
        chunks.append(chunk)
        return [2 * item for item in chunk]

    # A chunk may weigh a 64th of the limit: 10.
    weights = [1] * 6 + [4, 4, 4, 30, 1]
    results = _of_weights(double, weights, executor, max_items=100, max_weight=640, chunk_items=4)
    assert list(results) == [2 * item for item in range(len(weights))]
    assert sorted(chunks) == [[0, 1, 2, 3], [4, 5, 6, 7], [8], [9], [10]]


weights = st.lists(st.integers(0, 30), max_size=40)


@given(weights, st.integers(1, 20), st.integers(1, 100), st.integers(1, 5))
def test_items_in_flight_keep_both_limits(
    sequence: list[int], max_items: int, max_weight: int, chunk_items: int
) -> None:
    flying: set[int] = set()
    arrived: list[int] = []

    def begin(chunk: list[int]) -> list[int]:
        flying.update(chunk)
        assert len(flying) <= max(max_items, len(chunk))
        assert sum(sequence[item] for item in flying) <= max_weight or len(flying) == len(chunk)
        return chunk

    class AtOnce(ThreadPoolExecutor):
        def submit(self, function, /, *arguments, **_):  # type: ignore[no-untyped-def]
            future: Future = Future()
            future.set_result(function(*arguments))
            return future

    with AtOnce(1) as executor:
        limits = {"max_items": max_items, "max_weight": max_weight, "chunk_items": chunk_items}
        for item in _of_weights(begin, sequence, executor, **limits):
            arrived.append(item)
            # The others of its chunk take up room until the whole chunk is consumed.
            flying.discard(item)
    assert arrived == [*range(len(sequence))]


def test_sources_are_read_only_as_far_as_needed(executor: ThreadPoolExecutor) -> None:
    asked = 0

    def items() -> Iterator[int]:
        nonlocal asked
        for item in range(100_000):
            asked += 1
            yield item

    results = _map(lambda item: item, items(), executor, max_items=32)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert asked <= 32 + 2 * CHUNK_ITEMS
    results.close()


def test_the_first_exception_is_raised_after_earlier_results(executor: ThreadPoolExecutor) -> None:
    started = set()

    def work(item: int) -> int:
        started.add(item)
        time.sleep(0.001)
        if item in (40, 60):
            raise RuntimeError(f"item {item}")
        return item

    got = []
    with pytest.raises(RuntimeError, match="item 40"):
        for item in _map(work, range(1000), executor):
            got.append(item)
    assert got == list(range(len(got)))
    assert 40 - 8 <= len(got) <= 40, "what is lost before it is at most its own chunk"
    assert len(started) < 200, "items that had not started must not start"


def test_the_budget_is_never_exceeded_and_every_item_is_processed() -> None:
    budget = ByteBudget(100)
    lock = threading.Lock()
    used, most, done = 0, 0, 0

    def work(size: int) -> None:
        nonlocal used, most, done
        with budget.reserve(size):
            with lock:
                used += min(size, 100)
                most = max(most, used)
            time.sleep(0.0005)
            with lock:
                used -= min(size, 100)
                done += 1

    rng = random.Random(2)
    sizes = [rng.choice((1, 30, 60, 100, 5000)) for _ in range(120)]
    with ThreadPoolExecutor(8) as executor:
        list(executor.map(work, sizes))
    assert (done, used) == (120, 0)
    assert most <= 100


def test_all_processes_together_handle_one_oversized_picture_at_a_time(tmp_path: Path) -> None:
    """Two budgets stand for two processes, because a lock belongs to each open file."""
    lock_file = str(tmp_path / "lock")
    mine, other = ByteBudget(10, lock_file), ByteBudget(10, lock_file)
    entered = threading.Event()

    def take() -> None:
        with other.reserve(11):
            entered.set()

    thread = threading.Thread(target=take)
    with mine.reserve(11):
        with other.reserve(10):
            pass
        thread.start()
        assert not entered.wait(0.2)
    assert entered.wait(20)
    thread.join()
    # Without a place for the lock, there is none.
    with ByteBudget(10, str(tmp_path / "none" / "lock")).reserve(11):
        pass


def test_a_failing_block_returns_its_bytes() -> None:
    budget = ByteBudget(10)
    with pytest.raises(RuntimeError), budget.reserve(10):
        raise RuntimeError
    with budget.reserve(10):
        pass


def _counting(number: int) -> Iterator[int]:
    yield from range(number * 10_000, number * 10_000 + 2500)


def test_merged_streams_give_every_item_once() -> None:
    streams = [_counting(number) for number in range(7)] + [iter(())]
    merged = list(merge_streams(streams, 3))
    assert sorted(merged) == [item for number in range(7) for item in _counting(number)]
    for number in range(7):  # the order within a stream is kept
        mine = [item for item in merged if item // 10_000 == number]
        assert mine == list(_counting(number))
    assert list(merge_streams([], 3)) == []


def test_merged_streams_are_read_concurrently() -> None:
    barrier = threading.Barrier(4, timeout=10)

    def stream() -> Iterator[int]:
        barrier.wait()
        yield 1

    assert list(merge_streams([stream() for _ in range(4)], 4)) == [1, 1, 1, 1]


def _threads() -> int:
    return sum(thread.name.startswith("ThreadPoolExecutor") for thread in threading.enumerate())


def _wait_for_threads(most: int) -> None:
    deadline = time.monotonic() + 5
    while _threads() > most:
        assert time.monotonic() < deadline, "threads go on"
        time.sleep(0.01)


def test_the_error_of_a_merged_stream_is_raised_and_ends_the_others() -> None:
    before = _threads()

    def broken() -> Iterator[int]:
        yield 1
        raise OSError("listing failed")

    with pytest.raises(OSError, match="listing failed"):
        list(merge_streams([itertools.count(), broken(), itertools.count()], 3))
    _wait_for_threads(before)


def test_abandoned_merged_streams_end_their_threads() -> None:
    before = _threads()
    merged = merge_streams([itertools.count() for _ in range(9)], 3)
    assert next(merged) == 0
    merged.close()
    _wait_for_threads(before)


CODE = """
import sys
from PIL import Image
from shardwright.core.concurrency.thread_pool import working_budget

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def churn():
    keep = []
    for number in range(12):
        picture = Image.new("RGB", (3000, 3000), "teal")  # blocks of 16 MB
        keep.append(bytearray(200_000))  # what stays between them
        del picture
    return keep

working_budget()
first = Image.new("RGB", (1000, 1000), "teal")
before = resident()
kept = churn()
print(resident() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_freed_pictures_return_their_memory() -> None:
    done = ran(sys.executable, "-c", CODE)
    assert not done.returncode and int(done.stdout) < 12_000_000


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, 4),
        ({"cpu.max": b"max 100000\n"}, 4),
        ({"cpu.max": b"150000 100000\n"}, 2),
        ({"cpu.max": b"10000 100000\n"}, 1),
        ({"cpu.max": b"900000 100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": b"-1\n", "cpu/cpu.cfs_period_us": b"100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": b"300000\n", "cpu/cpu.cfs_period_us": b"100000\n"}, 3),
    ],
)
def test_a_containers_limit_of_processors_applies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes], cpus: int
) -> None:
    monkeypatch.setattr(resources.os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
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
    assert bool(budget.lock_file) == (processes > 1)
