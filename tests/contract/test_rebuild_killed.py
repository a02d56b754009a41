"""Rebuilds that are killed at random moments, while a reader constantly reads the latest version."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from helpers.rebuilding import IMAGES, generation_of, job_of, read_color
from helpers.repository import ROOT

from shardwright.core.versions import list_versions
from shardwright.loader import Records, pin
from shardwright.pipelines.rebuild import rebuild
from shardwright.pipelines.validate import validate
from shardwright.schemas.version import LEASE_JSON, VersionState

SCRIPT = ROOT / "tests" / "helpers" / "rebuilding.py"
_KILLED = -9


def _generation_read(output: str) -> int:
    """Reads all records of the latest version; returns the generation of all of them."""
    records = Records(pin(output), "train")
    values = [records[number] for number in range(len(records))]
    pictures = [np.frombuffer(value["image/encoded"], np.uint8).reshape(8, 8, 3) for value in values]
    found = dict(read_color(tuple(int(value) for value in picture[0, 0])) for picture in pictures)
    assert len(pictures) == len(found) == IMAGES
    assert all((picture == picture[0, 0]).all() for picture in pictures)
    newest = max(found.values())
    assert found == {number: generation_of(number, newest) for number in range(IMAGES)}
    return newest


def _kill_and_read(folder: Path, generations: int, seed: int) -> tuple[list[int], list[int]]:
    """Returns how each run ended, and which generations were read in between."""
    command = [sys.executable, str(SCRIPT), str(folder), str(generations), str(seed)]
    errors = folder / "errors.txt"
    read: list[int] = []
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    with (
        errors.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, env=environment) as job,
    ):
        while not (folder / "ready").exists() and job.poll() is None:
            time.sleep(0.05)
        while job.poll() is None:
            if (folder / "ready").exists():
                read.append(_generation_read(str(folder / "out")))
            time.sleep(0.05)
        ends = json.loads(job.communicate()[0] or "[]")
    assert job.returncode == 0, errors.read_text()
    return ends, read


def _check(folder: Path, generations: int, seed: int) -> None:
    ends, read = _kill_and_read(folder, generations, seed)
    output = str(folder / "out")
    assert ends[0] == ends[-1] == 0, (folder / "errors.txt").read_text()
    assert set(ends) == {0, _KILLED}
    assert read == sorted(read) and len(set(read)) > 1
    assert _generation_read(output) == generations
    records = list_versions(output)
    assert {record.state for record in records} == {VersionState.PUBLISHED}
    assert not (folder / "out" / LEASE_JSON).exists()
    assert validate(output).sound
    assert not rebuild(**job_of(folder)).changed


def test_readers_never_notice_that_rebuilds_are_killed(tmp_path: Path) -> None:
    _check(tmp_path, 3, 1)


@pytest.mark.slow
def test_readers_never_notice_fifty_kills(tmp_path: Path) -> None:
    _check(tmp_path, 50, 2)
