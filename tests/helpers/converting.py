"""Has threads convert in tests, as on a machine with one processor: most tests convert a few images."""

from __future__ import annotations

from shardwright.pipelines import workers
from shardwright.transforms.concurrency.workers import PROCESSES


def convert_in_threads() -> None:
    """Has threads convert in this process, unless a test gives `--pool processes`."""
    workers.uses_processes = lambda pool: pool == PROCESSES
