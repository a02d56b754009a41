"""Chooses threads or processes for a run on one machine, and says which."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heapify, heapreplace
from typing import Any, NamedTuple

from shardwright.pipelines.options import DEFAULT_RUNNER
from shardwright.schemas import units
from shardwright.schemas.configuration.settings import ConvertSettings
from shardwright.schemas.conversion_speed import ConversionSpeed
from shardwright.schemas.units import counted
from shardwright.transforms import storage
from shardwright.transforms.concurrency.workers import usable_cpus, worker_threads
from shardwright.transforms.plan.estimate import MAX_RECORDS_PER_SHARD
from shardwright.transforms.sources.source import Input, source_by_name

#: Seconds that an image holds the interpreter's lock, so that no thread of its process goes on; the same for
#: one that comes over a network; seconds to resize and encode it without the lock, and to decode each byte of
#: its file; and seconds that a run with processes takes longer to start. Measured: docs/engines.md.
LOCK_SECONDS = 0.33e-3
NETWORK_LOCK_SECONDS = 0.2e-3
FREE_SECONDS = 0.2e-3
SECONDS_PER_BYTE = 9e-9
START_SECONDS = 1.2
#: Processes take more memory and processor time, so they have to be faster by more than this share.
MIN_GAIN = 0.15
#: Maximum number of files to count before a run.
COUNTED_FILES = 200_000
COUNTED_OBJECTS = 10_000
#: Number of counted files whose sizes are read, as a sample: reading a size takes longer than counting.
_MEASURED_FILES = 1000
#: Of an archive or another file with images in it, for each of them; of a file that names them.
_BYTES_OF_AN_IMAGE, _BYTES_OF_A_ROW = 50_000, 100
#: Bytes of a stored pixel of an image that is encoded again.
_BYTES_OF_A_PIXEL = 0.25
_MULTI_PROCESSING = "multi_processing"


@dataclass(frozen=True)
class Workers:
    """The processes and threads of a run.

    Attributes:
      processes: Number of worker processes; 0 if the engine decides.
      threads: Number of threads in each process that decode and encode.
      cpus: Number of processors of this machine.
    """

    processes: int
    threads: int
    cpus: int

    def __str__(self) -> str:
        """Returns the text for the summary."""
        if not self.processes:
            return "workers as the engine has them"
        processes = "this process" if self.processes == 1 else f"each of {self.processes} processes"
        return f"{counted(self.threads, 'thread')} in {processes}, on {counted(self.cpus, 'processor')}"


class Workload(NamedTuple):
    """The files to convert, as far as they were counted.

    Attributes:
      files: Number of files.
      bytes: Their size.
      remote: Number of files that come over a network.
      is_part: Whether there are more.
    """

    files: int
    bytes: int
    remote: int = 0
    is_part: bool = False


@dataclass(frozen=True)
class LastRun:
    """What is known from an earlier run of the same dataset.

    Attributes:
      speed: How fast it converted; None if that is not known.
      shards: Split -> number of shards; empty if that is not carried on.
      since: Time in seconds since the epoch; older files are not converted again. None if all are.
      directory: Directory of the latest version; empty if there is none.
    """

    speed: ConversionSpeed | None = None
    shards: Mapping[str, int] = field(default_factory=dict)
    since: float | None = None
    directory: str = ""


def workers_named(given: Sequence[str] | None) -> int | None:
    """Returns the number of worker processes that Beam's options name; None if they leave the choice.

    Args:
      given: The options as the user wrote them; None if they came as an object.
    """
    if given is None:
        return 0
    tokens = (token.removeprefix("--").partition("=") for token in given)
    values = {name.replace("-", "_"): value for name, _, value in tokens}
    if not any(name.startswith("direct_") or name == "runner" for name in values):
        return None
    if values.get("direct_running_mode") != _MULTI_PROCESSING or "runner" in values:
        return 0
    workers = values.get("direct_num_workers", "")
    return int(workers) if workers.isdecimal() else 0


def choose_processes(
    given: Sequence[str] | None, inputs: Sequence[Input], settings: ConvertSettings, last: LastRun
) -> int:
    """Returns the number of processes for a run: 1 for this process alone, 0 if Beam's options decide.

    Args:
      given: Beam's options as the user wrote them; None if they came as an object.
      inputs: The inputs; their files are counted only as far as necessary.
      settings: Checked settings.
      last: What is known from an earlier run.
    """
    cpus = usable_cpus()
    if workers_named(given) is not None:
        return 0
    if cpus == 1:
        return 1
    load = _files_to_convert(inputs, last.since)
    share = busiest_share(_shard_sizes(load, settings, last), cpus)
    cost = cost_of_image(load, last.speed, bool(settings.map))
    return cpus if seconds_gained(load.files, cost, cpus, share) > 0 else 1


def set_workers(processes: int, options: Any) -> Workers:
    """Sets Beam's options, and returns the workers that it will use.

    Args:
      processes: The number that `choose_processes` returned.
      options: Beam's PipelineOptions.
    """
    from apache_beam.options.pipeline_options import DirectOptions, StandardOptions

    direct, cpus = options.view_as(DirectOptions), usable_cpus()
    if options.view_as(StandardOptions).runner != DEFAULT_RUNNER:
        return Workers(0, 0, cpus)
    if processes > 1:
        direct.direct_running_mode = _MULTI_PROCESSING
        direct.direct_num_workers = processes
    several = direct.direct_running_mode == _MULTI_PROCESSING
    return Workers((direct.direct_num_workers or cpus) if several else 1, worker_threads(), cpus)


class Cost(NamedTuple):
    """Processor seconds for an image: with the interpreter's lock, and without it."""

    lock: float
    free: float


def cost_of_image(load: Workload, speed: ConversionSpeed | None = None, mapped: bool = False) -> Cost:
    """Estimates the processor time for an image.

    Args:
      load: The files.
      speed: How fast an earlier run was. What it took longer than usual is the work of a codec without the
        lock, such as large pictures.
      mapped: Whether the user's own function is called (`--map`), which holds the lock.
    """
    size, remote = (load.bytes / load.files, load.remote / load.files) if load.files else (0.0, 0.0)
    lock = LOCK_SECONDS + remote * NETWORK_LOCK_SECONDS
    free = FREE_SECONDS + size * SECONDS_PER_BYTE
    if speed is None:
        return Cost(lock, free)
    measured = speed.processor_seconds + (size - speed.bytes) * SECONDS_PER_BYTE
    measured = max(measured, speed.processor_seconds / 2)
    if measured < lock + free:  # a faster machine
        return Cost(lock * measured / (lock + free), free * measured / (lock + free))
    return Cost(measured - free, free) if mapped else Cost(lock, measured - lock)


def seconds_gained(files: int, cost: Cost, cpus: int, share: float) -> float:
    """Returns the seconds that one process per processor saves over as many threads, beyond `MIN_GAIN`.

    Threads of one process wait for each other while one holds the interpreter's lock. Processes do not, but
    each shard is converted by one of them.

    Args:
      files: Number of files.
      cost: Processor time for each.
      cpus: Number of processors.
      share: Share of the images that the busiest process converts.
    """
    return files * (_thread_seconds(*cost, cpus) - sum(cost) * share * (1 + MIN_GAIN)) - START_SECONDS


def _thread_seconds(lock: float, free: float, threads: int) -> float:
    """Returns the seconds for each image that several threads need together.

    The lock is a queue with one server: mean value analysis gives how long a thread waits for it if there
    are 1, 2, ... threads (M. Reiser and S. S. Lavenberg, 1980).

    Args:
      lock: Seconds that an image holds the lock.
      free: Seconds that it needs without the lock.
      threads: Number of threads, each with a processor of its own.
    """
    seconds = lock + free
    waiting = 0.0
    for number in range(1, threads + 1):
        at_lock = lock * (1 + waiting)
        seconds = (free + at_lock) / number
        waiting = at_lock / seconds
    return seconds


def busiest_share(sizes: Sequence[float], processes: int) -> float:
    """Returns the share of all work that the busiest process does if each shard goes to the least busy one.

    Args:
      sizes: Sizes of the shards.
      processes: Number of processes.
    """
    total = sum(sizes)
    if not total:
        return 1 / processes
    busy = [0.0] * processes
    heapify(busy)
    for size in sorted(sizes, reverse=True):
        heapreplace(busy, busy[0] + size)
    return max(busy) / total


def _shard_sizes(load: Workload, settings: ConvertSettings, last: LastRun) -> list[float]:
    """Estimates the sizes of the shards; empty if there are probably enough for all processes.

    If the source names the splits, their number of shards is estimated as if it did not.
    """
    fixed = units.parse_shards(settings.shards) if settings.shards else 0
    shares: Mapping[str, Fraction] = settings.parsed_splits
    counts = (
        dict(fixed) if isinstance(fixed, dict) else dict.fromkeys(shares, fixed) if fixed else last.shards
    )
    if not counts and load.is_part:
        return []
    found: list[float] = []
    for split in dict.fromkeys((*shares, *counts)):
        share = float(shares.get(split, 0)) or 1 / (len(counts) or 1)
        count = counts.get(split) or _fresh_count(load, share, settings)
        found += [share / count] * count
    return found


def _fresh_count(load: Workload, share: float, settings: ConvertSettings) -> int:
    size = float(load.bytes)
    if settings.target:
        width, height = settings.target
        size = load.files * width * height * _BYTES_OF_A_PIXEL
    by_size = -(-size * share // units.parse_size(settings.shard_size))
    return max(1, int(by_size), -int(-load.files * share // MAX_RECORDS_PER_SHARD))


def _files_to_convert(inputs: Sequence[Input], since: float | None) -> Workload:
    """Counts the files that this run will probably convert.

    Args:
      inputs: The inputs.
      since: Time in seconds since the epoch; only files that were changed or added later count. None for all.
    """
    loads = [_files_in(item, since) for item in inputs]
    return Workload(
        files=sum(load.files for load in loads),
        bytes=sum(load.bytes for load in loads),
        remote=sum(load.remote for load in loads),
        is_part=any(load.is_part for load in loads),
    )


def _files_in(item: Input, since: float | None) -> Workload:
    is_remote = storage.is_remote(item.path)
    if is_remote and since is not None:
        return Workload(0, 0)  # mostly few, and to count them would take another listing
    if item.is_file:  # its contents are not known yet
        if since is not None and os.stat(item.path).st_ctime < since:
            return Workload(0, 0)
        names_only = source_by_name(item.source).names_images
        images = storage.size_of(item.path) // (_BYTES_OF_A_ROW if names_only else _BYTES_OF_AN_IMAGE)
        files = min(images, COUNTED_FILES)
        return Workload(files, files * _BYTES_OF_AN_IMAGE, files * is_remote, images > files)
    files = size = measured = 0
    if is_remote:
        for found in storage.list_objects(item.path):
            if files == COUNTED_OBJECTS:
                return Workload(files, size, files, True)
            files, size = files + 1, size + found.size
        return Workload(files, size, files)
    for entry in _files_below(item.path):
        if files == COUNTED_FILES:
            break
        if since is not None or measured < _MEASURED_FILES:
            try:
                state = entry.stat()
            except OSError:
                continue
            # Copies with their old time have a new ctime.
            if since is not None and state.st_ctime < since:
                continue
            size, measured = size + state.st_size, measured + 1
        files += 1
    return Workload(files, size * files // max(measured, 1), 0, files == COUNTED_FILES)


def _files_below(folder: str) -> Iterator[os.DirEntry[str]]:
    folders = [folder]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    yield entry
