"""Makes the commands of tests cheaper, because most of them convert a few images."""

from __future__ import annotations

import os

from shardwright.core.concurrency.resources import PROCESSES
from shardwright.pipelines import progress, run


def lighten_commands() -> None:
    """Has threads convert in this process, unless a test gives `--pool processes`, and saves other work."""
    run.uses_processes = lambda pool: pool == PROCESSES  # as on a machine with one processor
    progress.LINE_SECONDS = 3600.0  # on a busy machine, a command would print lines that no test expects
    os.fsync = lambda descriptor: None  # tests kill processes, but not the machine
    # Otherwise each parser of options, of which Beam makes hundreds, looks for translations on the disk.
    os.environ["LANGUAGE"] = "C"
