"""Makes the commands of tests cheaper, because most of them convert a few images.

Samples of dataset cards are left out, because drawing them takes much of the time of the suite. Modules that
look at the samples ask for the fixture `drawn`. The commands that tests start as processes draw them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from PIL import Image

from helpers.pictures import file_of
from shardwright.core import commit
from shardwright.core.concurrency.resources import PROCESSES
from shardwright.core.preview import draw_card_samples
from shardwright.core.salvage import commit as salvage_commit
from shardwright.pipelines import progress, run

_SAMPLES = file_of(Image.new("RGB", (8, 8)), "JPEG")


def lighten_commands() -> None:
    """Has threads convert in this process, unless a test gives `--pool processes`, and draws no samples."""
    run.uses_processes = lambda pool: pool == PROCESSES  # as on a machine with one processor
    progress.LINE_SECONDS = 3600.0  # on a busy machine, a command would print lines that no test expects
    os.fsync = lambda descriptor: None  # tests kill processes, but not the machine
    # Otherwise each parser of options, of which Beam makes hundreds, looks for translations on the disk.
    os.environ["LANGUAGE"] = "C"
    for module in (commit, salvage_commit):
        module.draw_card_samples = lambda directory, dataset: _SAMPLES if dataset.all_records else b""


@contextmanager
def drawing() -> Iterator[None]:
    """Has samples drawn within its context."""
    with (
        mock.patch.object(commit, "draw_card_samples", draw_card_samples),
        mock.patch.object(salvage_commit, "draw_card_samples", draw_card_samples),
    ):
        yield
