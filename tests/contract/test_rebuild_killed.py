"""Rebuilds that are killed at random moments, while a reader constantly reads the latest version.

Every fourth image changes in each generation. Its color shows which image it is and in which generation it
last changed, so that a reader of the dataset can check whether all records are of one version.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.depths import findings_of
from helpers.hostile import run_forked, start
from PIL import Image

from shardwright.core.versions import list_versions
from shardwright.loader import Records, pin
from shardwright.pipelines.rebuild import rebuild
from shardwright.schemas.version import LATEST_JSON, LEASE_JSON, VersionState

IMAGES, STEP = 24, 4
_KILLED = -9


def _alter(source: Path, generation: int) -> None:
    """Changes the source to its state in a generation."""
    for number in range(IMAGES):
        if generation == 0 or number % STEP == generation % STEP:
            path = source / f"class{number % 2}" / f"{number:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (number, generation, 255 - number)).save(path)


def _generation_read(output: Path) -> int:
    """Reads all records of the latest version; returns the generation of all of them."""
    pixels = [np.frombuffer(record["image/encoded"], np.uint8) for record in Records(pin(output), "train")]
    pictures = np.reshape(pixels, (IMAGES, 64, 3)).astype(int)
    assert (pictures == pictures[:, :1]).all()
    numbers, generations, rest = pictures[:, 0].T
    assert (rest == 255 - numbers).all() and sorted(numbers) == [*range(IMAGES)]
    newest: int = generations.max()
    assert (generations == np.maximum(newest - (newest - numbers) % STEP, 0)).all()
    return newest


def _check(folder: Path, generations: int, seed: int) -> None:
    source, output, log = (folder / name for name in ("source", "out", "log"))
    settings: dict[str, Any] = {
        "input": source, "output": output, "shards": 6, "image_format": "raw", "resize": 8,
        "resample": "nearest",
    }  # fmt: skip
    read = list[int]()

    def run(kill_after: float = 120.0) -> int:
        """Rebuilds in another process, and reads meanwhile; returns how that process ended."""
        process = start(log, "rebuild", *(f"--{name}={value}" for name, value in settings.items()))
        timer = threading.Timer(kill_after, process.kill)
        timer.start()
        while process.exitcode is None:
            if (output / LATEST_JSON).exists():
                read.append(_generation_read(output))
            process.join(0.05)
        timer.cancel()
        return int(process.exitcode)

    run_forked(log, "--version")  # starts the server from which all runs are forked
    _alter(source, 0)
    began = time.monotonic()
    ends = [run()]
    duration = time.monotonic() - began
    chance = random.Random(seed)
    for generation in range(1, generations + 1):
        _alter(source, generation)
        ends.append(run(chance.uniform(0, duration * 1.2)))
    ends.append(run())
    assert ends[0] == ends[-1] == 0, Path(f"{log}.err").read_text()
    assert set(ends) == {0, _KILLED}
    assert read == sorted(read) and len(set(read)) > 1
    assert _generation_read(output) == generations
    assert {record.state for record in list_versions(str(output))} == {VersionState.PUBLISHED}
    assert not (output / LEASE_JSON).exists()
    assert not findings_of(pin(output))
    assert not rebuild(**settings).changed


def test_readers_never_notice_that_rebuilds_are_killed(tmp_path: Path) -> None:
    _check(tmp_path, 3, 1)


@pytest.mark.slow
def test_readers_never_notice_fifty_kills(tmp_path: Path) -> None:
    _check(tmp_path, 50, 2)
