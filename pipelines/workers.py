"""Chooses where a run on this machine decodes and encodes images, and says so."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from shardwright.core.concurrency.converters import converters
from shardwright.core.concurrency.worker_process import can_start_processes
from shardwright.core.concurrency.workers import PROCESSES, usable_cpus, worker_threads
from shardwright.pipelines.options import DEFAULT_RUNNER
from shardwright.schemas.units import counted

#: Module that worker processes import when they start. This process needs it later.
_CONVERSION = "shardwright.core.conversion.convert"
#: Runners that work in this process.
_RUNNERS_HERE = (DEFAULT_RUNNER, "DirectRunner")


@dataclass(frozen=True)
class Workers:
    """What decodes and encodes in a run.

    Attributes:
      processes: Number of worker processes of the pool; 0 if threads do the work.
      threads: Number of threads that decode and encode at once in each process of the engine; 0 if the engine
        decides.
      cpus: Number of processors of this machine.
    """

    processes: int
    threads: int
    cpus: int

    def __str__(self) -> str:
        """Returns the text for the summary."""
        on = f", on {counted(self.cpus, 'processor')}"
        if self.processes:
            return counted(self.processes, "worker process") + on
        return counted(self.threads, "thread") + on if self.threads else "workers as the engine has them"


def converting(tokens: Sequence[str] | None) -> AbstractContextManager[Any]:
    """Returns a block in which worker processes already start, while this process imports Beam.

    Args:
      tokens: Beam's options, each with its value in one token; None if they came as an object.
    """
    values = dict(token.removeprefix("--").replace("-", "_").partition("=")[::2] for token in tokens or ())
    in_doubt = tokens is None or "runner" in values or "direct_running_mode" in values
    if in_doubt or not uses_processes(values.get("pool", "")):
        return nullcontext()
    return converters(in_processes=True, preload=_CONVERSION)


def uses_processes(pool: str) -> bool:
    """Returns whether a run in this process converts in worker processes.

    Args:
      pool: The value of `--pool`; empty if it is not given.
    """
    return can_start_processes() and (pool == PROCESSES or (not pool and usable_cpus() > 1))


def workers_of(options: Any) -> Workers:
    """Returns what decodes and encodes in a run with Beam's options."""
    from apache_beam.options.pipeline_options import DirectOptions, StandardOptions

    from shardwright.transforms.common import WorkerOptions

    cpus = usable_cpus()
    if options.view_as(StandardOptions).runner not in _RUNNERS_HERE:
        return Workers(0, 0, cpus)
    in_memory = options.view_as(DirectOptions).direct_running_mode == "in_memory"
    if in_memory and uses_processes(options.view_as(WorkerOptions).pool):
        return Workers(cpus, 1, cpus)
    return Workers(0, worker_threads(), cpus)
