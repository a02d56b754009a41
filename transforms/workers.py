"""What a worker process may use of its machine: processors, and so threads."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

_CGROUP = Path("/sys/fs/cgroup")


def job_options() -> Any:
    """Returns Beam's options of the job that this process works for, None where Beam is not in use.

    The SDK's worker hands them to its file systems, as a pipeline's constructor does at the launcher.
    """
    module = sys.modules.get("apache_beam.io.filesystems")
    return module.FileSystems._pipeline_options if module else None


def usable_cpus(cgroup: Path = _CGROUP) -> int:
    """Returns the processors that this process may use, a container's limit included.

    Source: the kernel's cgroup v2 documentation (`cpu.max`) and v1 scheduler documentation
    (`cpu.cfs_quota_us`).
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for quota_file, period_file in (("cpu.max", ""), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            words = (cgroup / quota_file).read_text().split()
            if period_file:
                words += (cgroup / period_file).read_text().split()
            quota, period = int(words[0]), int(words[1])
        except (OSError, ValueError, IndexError):
            continue  # no such limit, or `max`
        if quota > 0:
            cpus = min(cpus, max(1, -(-quota // period)))
    return cpus


def worker_threads() -> int:
    """Returns the threads that decode and encode in this process: its share of the processors.

    Where a machine runs several workers each gets one thread more than its share, for while one
    holds the interpreter's lock or waits for a disk, another can compute.
    """
    cpus = usable_cpus()
    processes = min(cpus, _processes_here(job_options()))
    return cpus if processes == 1 else -(-cpus // processes) + 1


def _processes_here(options: Any) -> int:
    """Returns how many worker processes share this machine, as far as the options say."""
    if options is None:
        return 1
    from apache_beam.options.pipeline_options import (
        DebugOptions,
        DirectOptions,
        PortableOptions,
        StandardOptions,
    )

    runner = (options.view_as(StandardOptions).runner or "").lower()
    if "dataflow" in runner:  # an SDK process for every vCPU, unless told otherwise
        single = options.view_as(DebugOptions).lookup_experiment("no_use_multiple_sdk_containers")
        return 1 if single else sys.maxsize
    direct = options.view_as(DirectOptions)
    if direct.direct_running_mode == "multi_processing":
        return direct.direct_num_workers or sys.maxsize
    count = int(options.view_as(PortableOptions).sdk_worker_parallelism or 1)  # a text, if given
    return count or sys.maxsize  # 0: the engine decides
