"""Shows the progress of a run: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from shardwright.core import storage
from shardwright.core.concurrency.progress import PROGRESS
from shardwright.core.storage.faults import longest_wait
from shardwright.pipelines import log
from shardwright.schemas.plain_text import printable
from shardwright.schemas.units import counted

TICK_SECONDS = 0.2
#: Seconds between lines without a terminal.
LINE_SECONDS = 10.0
#: Counts behind a line, for programs.
_FIGURES = (
    "listed", "images", "total_images", "shards", "total_shards", "bad", "checked_records", "findings",
)  # fmt: skip
#: Seconds of work before a rate is meaningful.
_SETTLED_SECONDS = 1.0
#: Seconds without bytes from a storage until the line mentions it.
_WAIT_SECONDS = 5.0


@contextlib.contextmanager
def show_progress(is_shown: bool, directory: str = "") -> Iterator[None]:
    """Shows the progress of this process's workers on stderr while the block runs.

    Args:
      is_shown: Whether to show anything.
      directory: Directory in which a dataset is built, for a summary of its input, and for the number of
        shards of workers in other processes; empty if none is built.
    """
    PROGRESS.reset()
    if not is_shown or log.LOG.is_quiet:
        yield
        return
    stop, run = threading.Event(), _Run(directory)
    watch = _on_terminal if sys.stderr.isatty() and not log.LOG.is_json else _in_lines
    thread = threading.Thread(target=watch, args=(stop, run), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        run.print_news()  # the run may have ended before the first tick


class _Run:
    """The run that is shown.

    Args:
      directory: Directory in which a dataset is built; empty if none is built.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._is_listed = not directory
        self._started: float | None = None

    def print_news(self) -> None:
        """Prints the summary of the input once it is listed, and messages of this process's workers."""
        if PROGRESS.tree and not self._is_listed:
            self._is_listed = True
            log.info(f"found: {PROGRESS.tree}")
        for sentence in PROGRESS.taken_sentences():
            log.note(sentence)

    def text(self) -> str:
        """Returns the state as one line."""
        if self._started is None and PROGRESS.images:
            self._started = time.monotonic() - TICK_SECONDS
        seconds = time.monotonic() - self._started if self._started is not None else 0.0
        return progress_text(seconds, self._directory)


def progress_text(seconds: float, directory: str = "") -> str:
    """Returns the state of the run as one line.

    Args:
      seconds: Measures the seconds since the first image was finished.
      directory: Directory of the shard ledgers.
    """
    done, wait = _work_text(seconds, directory), longest_wait()
    if wait is None or wait[1] < _WAIT_SECONDS:
        return done
    return f"{done}, waiting for {printable(wait[0])} since {wait[1]:.0f} s"


def _work_text(seconds: float, directory: str) -> str:
    images, total = PROGRESS.images, PROGRESS.total_images
    count = PROGRESS.total_shards
    if PROGRESS.checked_shards:
        shards = PROGRESS.checked_shards
        done = f"shard {shards:,}/{count:,}" if count else counted(shards, "shard")
        records, findings = PROGRESS.checked_records, PROGRESS.findings
        return f"reading back: {counted(records, 'record')}, {done}, {counted(findings, 'finding')}"
    shards = PROGRESS.shards
    if not shards and directory and not storage.is_remote(directory):  # workers in other processes
        shards = len(storage.list_files(storage.join(directory, "_shards")))
        shards = min(shards, count) if count else shards  # some may be of an earlier run
    if not images and not shards:
        return f"listing: {counted(PROGRESS.listed, 'file')}" if PROGRESS.listed else "starting"
    parts = []
    if images:
        parts.append(f"{images:,}/{total:,} images" if total else counted(images, "image"))
    if images and seconds >= _SETTLED_SECONDS:
        rate = images / seconds
        parts.append(f"{rate:,.0f} images/s")
        if total > images:
            parts.append(f"{_clock((total - images) / rate)} left")
    parts.append(f"shard {shards:,}/{count:,}" if count else counted(shards, "shard"))
    parts.append(f"{PROGRESS.bad:,} bad")
    return ", ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _on_terminal(stop: threading.Event, run: _Run) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (BarColumn(bar_width=24), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        while not stop.wait(TICK_SECONDS):
            run.print_news()
            bar.update(
                task,
                total=PROGRESS.total_images or None,
                completed=PROGRESS.images,
                description=run.text(),
            )


def _in_lines(stop: threading.Event, run: _Run) -> None:
    last, printed = time.monotonic(), ""
    while not stop.wait(TICK_SECONDS):
        run.print_news()
        text = run.text()
        if time.monotonic() - last < LINE_SECONDS:
            continue
        last = time.monotonic()
        if text != printed:  # do not repeat a line
            printed = text
            log.info(text, **{name: getattr(PROGRESS, name) for name in _FIGURES})
