"""Compares rebuilds with full conversions.

It converts the photos, changes a share of them at random places, and measures in several rounds, in turn:

- `shardwright convert` of all photos into a new directory;
- `shardwright rebuild` after a change of no photo, of 1% and of 10% of the photos.

Each run is a separate process that has first done the same with two photos, so that the start of the
interpreter and the imports are not measured. Every rebuild must reach the fingerprint of
`convert --plan_from` with the previous version. The photos do not change, because the run replaces links to
them. All rebuilds read the same path, as those of every night do.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from command import Benchmark, Found, run_benchmark
from inputs import photos
from PIL import Image, ImageOps
from rounds import SPEED, SPEED_BY_PROCESSOR, Turn, summarize, take_turns

from shardwright.pipelines.cli import main as shardwright

FULL = "convert everything"
UNCHANGED = "rebuild, nothing changed"
#: Rebuild -> share of the photos that change before it.
CHANGED = {"rebuild, 1% changed": 0.01, "rebuild, 10% changed": 0.1}
#: The file with the fingerprint of a command's result.
_SAYS = {"convert": "dataset.json", "rebuild": "latest.json"}
_QUALITY = 90


@contextlib.contextmanager
def renamed(folder: Path, name: Path) -> Iterator[None]:
    """Gives a folder another name while the block runs."""
    folder.rename(name)
    try:
        yield
    finally:
        name.rename(folder)


def alter(photos: Path, altered: Path, share: float) -> int:
    """Makes a folder of the same photos with some replaced by other pictures; returns how many."""
    shutil.copytree(photos, altered)  # a link would give the original another ctime
    files = sorted(path for path in altered.rglob("*") if path.is_file())
    chosen = random.Random(share).sample(files, round(len(files) * share))
    for path in chosen:
        with Image.open(path) as picture:
            made = ImageOps.invert(picture.convert("RGB"))
        path.unlink()
        made.save(path, "JPEG", quality=_QUALITY)
    return len(chosen)


def run(command: str, photos: Path, output: Path, *more: str) -> None:
    """Runs a command of the project in this process."""
    code = shardwright([command, f"--input={photos}", f"--output={output}", "--resize=224", *more])
    if code:
        raise SystemExit(f"{command} ended with {code}")


def warm_up(photos: Path, scratch: Path) -> None:
    """Does all work with two photos, so that all modules are imported."""
    first, second = sorted(path for path in photos.rglob("*") if path.is_file())[:2]
    folder = scratch / "photos" / "one"
    folder.mkdir(parents=True)
    shutil.copy(first, folder / "first.jpg")
    run("convert", folder.parent, scratch / "converted")
    for _ in range(2):
        run("rebuild", folder.parent, scratch / "versions")
    shutil.copy(second, folder / "second.jpg")
    run("rebuild", folder.parent, scratch / "versions")
    shutil.rmtree(scratch)


def used() -> float:
    """Returns the processor seconds that this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def run_once(options: argparse.Namespace) -> dict[str, Any]:
    """Converts or rebuilds in this process and returns the measurements."""
    output: Path = options.output
    warm_up(options.photos, output.with_name(f"{output.name}-warm-up"))
    more = [f"--plan_from={options.plan_from}"] if options.plan_from else []
    pointer = output / _SAYS["rebuild"]
    before = json.loads(pointer.read_text())["version"] if pointer.exists() else ""
    began, cpu = time.perf_counter(), used()
    run(options.run, options.photos, output, *more)
    seconds, cpu = time.perf_counter() - began, used() - cpu
    made, work = json.loads((output / _SAYS[options.run]).read_text()), {}
    if options.run == "rebuild" and made["version"] != before:
        work = json.loads((output / "versions" / made["version"] / "version.json").read_text())["work"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return {
        "time": seconds,
        "processor time": cpu,
        "peak": peak,
        "fingerprint": made["fingerprint"],
        "work": work,
    }


def measure_apart(command: str, photos: Path, output: Path, plan_from: Path | None = None) -> dict[str, Any]:
    """Runs `run_once` in a separate process."""
    arguments = [f"--run={command}", f"--photos={photos}", f"--output={output}"]
    if plan_from is not None:
        arguments.append(f"--plan_from={plan_from}")
    os.sync()
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def make_ways(photos: Path, work: Path) -> dict[str, Callable[[], Turn]]:
    """Makes the first version, changes the photos, and returns the ways to measure.

    Raises:
      SystemExit: If the result of a rebuild differs from that of a conversion.
    """
    first, scratch, source = work / "first", work / "scratch", work / "photos"
    folders = {UNCHANGED: work / "photos-unchanged"}
    alter(photos, folders[UNCHANGED], 0)
    with renamed(folders[UNCHANGED], source):
        expected = {UNCHANGED: measure_apart("rebuild", source, first)["fingerprint"]}
    for name, share in CHANGED.items():
        folders[name] = work / f"photos-{share}"
        alter(photos, folders[name], share)
        with renamed(folders[name], source):
            expected[name] = measure_apart("convert", source, scratch, first)["fingerprint"]
        shutil.rmtree(scratch)

    def full() -> Turn:
        found = measure_apart("convert", photos, scratch)
        shutil.rmtree(scratch)
        return only_measures(found)

    def way(name: str) -> Callable[[], Turn]:
        def again() -> Turn:
            shutil.copytree(first, scratch, copy_function=os.link)
            with renamed(folders[name], source):
                found = measure_apart("rebuild", source, scratch)
            shutil.rmtree(scratch)
            if found["fingerprint"] != expected[name]:
                raise SystemExit(
                    f"{name}: the rebuild made {found['fingerprint']}, convert {expected[name]}."
                )
            return only_measures(found)

        return again

    return {FULL: full, **{name: way(name) for name in folders}}


def only_measures(found: dict[str, Any]) -> dict[str, float]:
    """Returns the measures of a run without the other facts."""
    return {name: value for name, value in found.items() if name in ("time", "processor time", "peak")}


def with_speed(run: Callable[[], Turn], count: int) -> Turn:
    """Runs a way; returns its measures with the number of images per second."""
    turn = run()
    return {**turn, SPEED: count / turn["time"], SPEED_BY_PROCESSOR: count / turn["processor time"]}


def measure(options: argparse.Namespace) -> Found:
    """Converts and rebuilds in turn."""
    given = photos(options, options.count)
    with tempfile.TemporaryDirectory(dir=options.work, prefix="rebuild-") as work:
        ways = {
            name: partial(with_speed, run, given.count)
            for name, run in make_ways(given.folder, Path(work)).items()
        }
        found = take_turns(ways, options.rounds)
    units = {
        "time": "s",
        "processor time": "s",
        SPEED: "images/s",
        SPEED_BY_PROCESSOR: "images/s",
        "peak": "MB",
    }
    return Found(
        given.text, summarize(found, units, dict.fromkeys(found, FULL), only=(SPEED, SPEED_BY_PROCESSOR))
    )


BENCHMARK = Benchmark(
    "rebuild",
    "Compares rebuilds with full conversions, without the start.",
    measure,
    quick={"count": 2000, "rounds": 1},
    full={"count": 20_000, "rounds": 3},
)


def main() -> int:
    """Runs the command line, or one conversion or rebuild for it."""
    parser = argparse.ArgumentParser(add_help=False)
    for name in ("--run", "--photos", "--output", "--plan_from"):
        parser.add_argument(name, type=str if name == "--run" else Path)
    options, _ = parser.parse_known_args()
    if not options.run:
        return run_benchmark(BENCHMARK)
    print(json.dumps(run_once(options)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
