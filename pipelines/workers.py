"""Chooses threads or processes for a run on one machine, and says which."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from shardwright.pipelines.options import DEFAULT_RUNNER
from shardwright.schemas.units import counted
from shardwright.transforms import storage
from shardwright.transforms.concurrency.workers import usable_cpus, worker_threads
from shardwright.transforms.sources.source import Input, source_by_name

#: Seconds that an image holds the interpreter's lock, so that no thread of its process goes on;
#: the same for one that comes over a network; processor seconds for each byte of its file; and
#: seconds until several processes have started. Measured: docs/engines.md.
LOCK_SECONDS = 0.4e-3
NETWORK_LOCK_SECONDS = 1.0e-3
SECONDS_PER_BYTE = 21e-9
START_SECONDS = 5.0
#: Maximum number of files to count before a run.
COUNTED_FILES = 50_000
COUNTED_OBJECTS = 10_000
#: Number of counted files whose sizes are read, as a sample: reading a size takes longer than counting.
_MEASURED_FILES = 1000
#: Of an archive or another file with images in it, for each of them; of a file that names them.
_BYTES_OF_AN_IMAGE, _BYTES_OF_A_ROW = 50_000, 100
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


def choose_workers(given: Sequence[str] | None, options: Any, inputs: Sequence[Input]) -> Workers:
    """Chooses processes and threads, unless the user did, and sets Beam's options.

    Args:
      given: Beam's options as the user wrote them; None if they came as an object.
      options: The same as Beam's PipelineOptions; changed if several processes are better.
      inputs: The inputs; their files are counted only as far as necessary.
    """
    from apache_beam.options.pipeline_options import DirectOptions, StandardOptions

    direct, cpus = options.view_as(DirectOptions), usable_cpus()
    if options.view_as(StandardOptions).runner != DEFAULT_RUNNER:
        return Workers(0, 0, cpus)
    told = given is None or any(token.startswith("--direct_") for token in given)
    if not told and cpus > 1 and seconds_gained(_first_files(inputs), cpus) > START_SECONDS:
        direct.direct_running_mode = _MULTI_PROCESSING
        direct.direct_num_workers = cpus
    processes = (direct.direct_num_workers or cpus) if direct.direct_running_mode == _MULTI_PROCESSING else 1
    return Workers(processes, worker_threads(), cpus)


class Workload(NamedTuple):
    """The first files of the inputs: how many, their bytes, and how many come over a network."""

    files: int
    bytes: int
    remote: int


def seconds_gained(load: Workload, cpus: int) -> float:
    """Returns the seconds that one process per processor saves over as many threads.

    Threads of one process wait for each other while one holds the interpreter's lock, so together
    they are never faster than that; processes share nothing.
    """
    lock = load.files * LOCK_SECONDS + load.remote * NETWORK_LOCK_SECONDS
    spread = (lock + load.bytes * SECONDS_PER_BYTE) / cpus
    return max(lock, spread) - spread


def _first_files(inputs: Sequence[Input]) -> Workload:
    files = size = remote = 0
    for item in inputs:
        if item.is_file:  # its contents are not known yet
            bytes_ = storage.size_of(item.path)
            names_only = source_by_name(item.source).names_images
            images = bytes_ // (_BYTES_OF_A_ROW if names_only else _BYTES_OF_AN_IMAGE)
            images = min(images, COUNTED_FILES)
            files, size = files + images, size + images * _BYTES_OF_AN_IMAGE
            remote += images if storage.is_remote(item.path) else 0
            continue
        if storage.is_remote(item.path):
            for found in islice(storage.list_objects(item.path), COUNTED_OBJECTS):
                files, size, remote = files + 1, size + found.size, remote + 1
            continue
        entries = list(islice(_files_below(item.path), COUNTED_FILES))
        measured = [_size_of(entry) for entry in entries[:_MEASURED_FILES]]
        files += len(entries)
        size += sum(measured) * len(entries) // max(len(measured), 1)
    return Workload(files, size, remote)


def _size_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except OSError:
        return 0


def _files_below(folder: str) -> Iterator[os.DirEntry[str]]:
    folders = [folder]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    yield entry
