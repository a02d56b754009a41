"""The command that started a worker process shows what the worker waits for."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from shardwright.pipelines.progress import progress_text
from shardwright.transforms.storage import deadlines, worker_waits

#: A worker process that has waited for 45 seconds, and ends when its stdin is closed.
WORKER = """
import sys
from shardwright.transforms.storage import deadlines
made = deadlines.Operation(deadlines.Contact(lambda _: 180.0), "gs://b/photos/a.jpg")
with deadlines.within(made):
    made.quiet_since -= 45
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a command, which is this process."""
    monkeypatch.setenv(worker_waits.SCRATCH_VARIABLE, str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_line_names_what_a_worker_process_waits_for(folder: Path) -> None:
    worker = subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while "waiting" not in progress_text(0.0) and worker.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "waiting for gs://b/photos/a.jpg since 4" in progress_text(0.0)
    finally:
        worker.communicate("")
    assert worker.returncode == 0


def test_the_longest_wait_is_shown(folder: Path) -> None:
    worker_waits.write_wait(str(folder), ("gs://b/worker", 50.0))
    own = deadlines.Operation(deadlines.Contact(lambda _: 180.0), "gs://b/own")
    with deadlines.within(own):
        own.quiet_since -= 20
        assert progress_text(0.0).endswith("waiting for gs://b/worker since 50 s")
        own.quiet_since -= 60
        assert progress_text(0.0).endswith("waiting for gs://b/own since 80 s")
        worker_waits.write_wait(str(folder), None)
    assert "waiting" not in progress_text(0.0) and not list(folder.iterdir())


@pytest.mark.parametrize("content", ["", "{", "[]", "[1]", '["a", "b"]', "7"])
def test_a_damaged_file_is_ignored(folder: Path, content: str) -> None:
    (folder / "waiting-7.json").write_text(content)
    assert deadlines.longest_wait() is None


def test_a_file_of_a_killed_worker_is_ignored(folder: Path) -> None:
    worker_waits.write_wait(str(folder), ("gs://b/worker", 50.0))
    (path,) = folder.iterdir()
    assert deadlines.longest_wait() == ("gs://b/worker", 50.0)
    os.utime(path, (1, 1))
    assert deadlines.longest_wait() is None


def test_only_worker_processes_report_waits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not worker_waits._folder_of_command()
    monkeypatch.setattr(tempfile, "tempdir", "/elsewhere")
    assert worker_waits._folder_of_command() == str(folder)
    assert list(worker_waits.waits_of_workers()) == []
