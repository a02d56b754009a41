"""Rebuilds a dataset in a separate process, repeatedly, and kills it at random moments.

    python rebuilding.py FOLDER GENERATIONS SEED

Every fourth image changes in each generation. Its color shows which image it is and in which generation it
last changed, so that a reader of the dataset can check whether all records are of one version.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from PIL import Image

IMAGES = 24
STEP = 4
_LONGEST = 120.0
#: What the children of this process would otherwise import, each one again.
_INHERITED = (
    "apache_beam.runners.portability.fn_api_runner.fn_runner",
    "apache_beam.runners.worker.sdk_worker",
    "shardwright.pipelines.rebuild",
    "shardwright.transforms.rebuild",
    "shardwright.core.report.render",
)


def generation_of(number: int, generation: int) -> int:
    """Returns the generation in which an image last changed."""
    return max(generation - (generation - number) % STEP, 0)


def color_of(number: int, generation: int) -> tuple[int, int, int]:
    """Returns the color of an image that last changed in a generation."""
    return number, generation % 256, 255 - number


def read_color(pixel: tuple[int, int, int]) -> tuple[int, int]:
    """Returns an image's number and the generation in which it last changed."""
    assert pixel[0] == 255 - pixel[2], pixel
    return pixel[0], pixel[1]


def alter(folder: Path, generation: int) -> None:
    """Changes the source to its state in a generation."""
    for number in range(IMAGES):
        if generation == 0 or number % STEP == generation % STEP:
            path = folder / "source" / f"class{number % 2}" / f"{number:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), color_of(number, generation)).save(path)


def job_of(folder: Path) -> dict[str, object]:
    """Returns the settings of the rebuild."""
    return {
        "input": str(folder / "source"), "output": str(folder / "out"), "shards": 6, "image_format": "raw",
        "resize": 8, "resample": "nearest",
    }  # fmt: skip


def in_a_child(folder: Path, kill_after: float | None) -> int:
    """Rebuilds in a child of this process, which has imported everything already; returns how it ended."""
    child = os.fork()
    if child == 0:
        code = 9
        try:
            from shardwright.pipelines.rebuild import rebuild

            rebuild(**job_of(folder))
            code = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    end = time.monotonic() + (_LONGEST if kill_after is None else kill_after)
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder: Path, generations: int, seed: int) -> None:
    """Rebuilds, and kills each run except the last; prints as JSON how each run ended."""
    for module in _INHERITED:
        importlib.import_module(module)
    from helpers.sketched_drawings import sketch_drawings  # it imports our modules

    sketch_drawings()
    chance = random.Random(seed)
    alter(folder, 0)
    began = time.monotonic()
    ends = [in_a_child(folder, None)]
    duration = time.monotonic() - began
    (folder / "ready").touch()
    for generation in range(1, generations + 1):
        alter(folder, generation)
        ends.append(in_a_child(folder, chance.uniform(0, duration * 1.2)))
    ends.append(in_a_child(folder, None))
    (folder / "done").touch()
    print(json.dumps(ends))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
