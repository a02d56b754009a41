"""Processors, threads and memory that a worker process may use on its machine."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Values of `--pool`.
THREADS, PROCESSES = POOLS = "threads", "processes"
#: Beginning of the name of a process's own folder for temporary files, which is removed when it ends.
RUN_FOLDER = "shardwright-run-"
#: Numbers of the parameters of mallopt(3), and bytes of a block that is given back at once.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _LARGE_BLOCK = -1, -3, 1 << 22
_CGROUP = Path("/sys/fs/cgroup")


def job_options() -> Any:
    """Returns Beam's options of the current job; None if Beam is not in use.

    The SDK's worker passes them to its file systems, as a pipeline's constructor does at the launcher.
    """
    module = sys.modules.get("apache_beam.io.filesystems")
    return module.FileSystems._pipeline_options if module else None


def values_of(options: Any) -> Mapping[str, Any]:
    """Returns the values of Beam's options by name; none without options.

    A worker does not know the options that only this package has, and has their values as texts.

    Args:
      options: Beam's options of a job, or None.
    """
    return {} if options is None else options.get_all_options(retain_unknown_options=True)


def experiment(values: Mapping[str, Any], name: str) -> str | None:
    """Returns the value of a Beam experiment, which may be empty; None if the experiment is not given."""
    return dict(item.partition("=")[::2] for item in values.get("experiments") or ()).get(name)


def usable_cpus(cgroup: Path = _CGROUP) -> int:
    """Returns the number of processors that this process may use, within a container's limit.

    Source: the kernel's cgroup v2 documentation (`cpu.max`) and v1 scheduler documentation
    (`cpu.cfs_quota_us`).
    """
    limits = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    for quota_file, period_file in (("cpu.max", ""), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            words = (cgroup / quota_file).read_text().split()
            if period_file:
                words += (cgroup / period_file).read_text().split()
            quota, period = int(words[0]), int(words[1])
        except (OSError, ValueError, IndexError):
            continue  # no such limit, or `max`
        if quota > 0:
            limits.append(max(1, -(-quota // period)))
    return min(limits)


def return_large_blocks() -> None:
    """Makes the C library return the memory of large pictures to the system when they are freed.

    glibc raises by itself the size from which it does so, up to 32 MB, and Pillow keeps pictures in blocks of
    16 MB: after a few of them, freed ones stay in the process between others. Without this automatism, it
    would give back each 128 kB at the end of its memory, and the next photograph would have to clear new
    pages: a tenth of the processor time of a conversion. Other C libraries are left alone.
    Source: mallopt(3).
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)
        library.mallopt(_M_TRIM_THRESHOLD, _LARGE_BLOCK)


def worker_threads() -> int:
    """Returns the number of threads that decode and encode in this process: its share of the processors.

    If a machine runs several workers, each gets one thread more than its share: while one thread holds the
    interpreter lock or waits for a disk, another can compute.
    """
    cpus, processes = usable_cpus(), worker_processes()
    return cpus if processes == 1 else -(-cpus // processes) + 1


#: Number of worker processes of the pool that this process belongs to; 0 if it belongs to none.
_processes_of_pool = 0


def set_worker_processes(count: int) -> None:
    """Sets the number of worker processes on this machine, for a process that another one started."""
    global _processes_of_pool
    _processes_of_pool = count


def worker_processes() -> int:
    """Returns the number of worker processes on this machine, at most one for each processor."""
    if _processes_of_pool:
        return _processes_of_pool
    values = values_of(job_options())
    if "dataflow" in (values.get("runner") or "").lower():  # one SDK process per vCPU by default
        count = 0 if experiment(values, "no_use_multiple_sdk_containers") is None else 1
    elif values.get("direct_running_mode") == "multi_processing":
        count = values["direct_num_workers"]
    else:
        count = int(values.get("sdk_worker_parallelism") or 1)  # a text, if given
    return min(usable_cpus(), count or sys.maxsize)  # 0: the engine decides


def usable_memory(cgroup: Path = _CGROUP) -> int:
    """Returns the memory of this machine in bytes, or a container's limit if that is less.

    Source: the kernel's cgroup v2 documentation (`memory.max`) and v1 memory documentation
    (`memory.limit_in_bytes`).
    """
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # no such limit, or `max`
            limits.append(int((cgroup / name).read_text()))
    return min(limits)
