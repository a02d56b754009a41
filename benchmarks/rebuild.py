"""Compares rebuilds with full conversions.

It converts the photos, changes a share of them at random places, and measures in several rounds, in turn:

- `shardwright convert` of all photos into a new directory;
- `shardwright rebuild` after a change of no photo, of 1% and of 10% of the photos.

Each run is a separate process that has first done the same with two photos, so that the start of the
interpreter and the imports are not measured. Every rebuild must reach the fingerprint of
`convert --plan_from` with the previous version. It prints medians of time and of processor time, which other
programs influence less. The photos do not change, because the run replaces links to them.

    python benchmarks/rebuild.py --photos photos --work /tmp/rebuild
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from PIL import Image, ImageOps

from shardwright.pipelines.cli import main as shardwright

_FULL = "convert"
#: The file with the fingerprint of a command's result.
_SAYS = {_FULL: "dataset.json", "rebuild": "latest.json"}
_QUALITY = 90


def alter(photos: Path, altered: Path, share: float) -> int:
    """Makes a folder of the same photos with some replaced by other pictures; returns how many."""
    shutil.rmtree(altered, ignore_errors=True)
    shutil.copytree(photos, altered, copy_function=os.link)
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
        "seconds": seconds,
        "cpu_seconds": cpu,
        "peak_mb": peak,
        "fingerprint": made["fingerprint"],
        "work": work,
    }


def measure(command: str, photos: Path, output: Path, plan_from: Path | None = None) -> dict[str, Any]:
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


def make_ways(photos: Path, work: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    """Makes the first version, changes the photos, and returns the ways to measure: name -> function.

    Raises:
      SystemExit: if the result of a rebuild differs from that of a conversion.
    """
    first, scratch = work / "first", work / "scratch"
    shutil.rmtree(first, ignore_errors=True)
    expected = {"0%": measure("rebuild", photos, first)["fingerprint"]}
    folders = {"0%": photos}
    for name, share in (("1%", 0.01), ("10%", 0.1)):
        folders[name] = work / f"photos-{name}"
        count = alter(photos, folders[name], share)
        made = measure(_FULL, folders[name], scratch, first)
        shutil.rmtree(scratch)
        expected[name] = made["fingerprint"]
        print(f"{name}: {count:,} photos altered", file=sys.stderr)

    def full() -> dict[str, Any]:
        found = measure(_FULL, photos, scratch)
        shutil.rmtree(scratch)
        return found

    def again(name: str) -> dict[str, Any]:
        shutil.copytree(first, scratch, copy_function=os.link)
        found = measure("rebuild", folders[name], scratch)
        shutil.rmtree(scratch)
        if found["fingerprint"] != expected[name]:
            raise SystemExit(f"{name}: the rebuild made {found['fingerprint']}, convert {expected[name]}.")
        return found

    def way(name: str) -> Callable[[], dict[str, Any]]:
        return lambda: again(name)

    shutil.rmtree(scratch, ignore_errors=True)
    return {_FULL: full, **{name: way(name) for name in folders}}


def report(found: dict[str, list[dict[str, Any]]]) -> None:
    """Prints the medians and their share of a full conversion."""
    for name, rounds in found.items():
        seconds, cpu = (median(run[field] for run in rounds) for field in ("seconds", "cpu_seconds"))
        faster, spared = (
            median(whole[field] / run[field] for whole, run in zip(found[_FULL], rounds))
            for field in ("seconds", "cpu_seconds")
        )
        peak = max(run["peak_mb"] for run in rounds)
        work = {key: count for key, count in rounds[0]["work"].items() if count}
        print(
            f"{name:8} {seconds:7.2f} s, {cpu:7.2f} s of processors, {peak:4.0f} MB; {faster:5.1f} times as "
            f"fast as convert, {spared:5.1f} by processor time  {work or ''}"
        )


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="a folder of photos, classes as folders")
    parser.add_argument("--work", type=Path, help="a folder for what it makes, on the photos' disk")
    parser.add_argument("--rounds", default=3, type=int, help="how often each is measured")
    parser.add_argument("--json", type=Path, help="where all figures go")
    for name in ("--run", "--output", "--plan_from"):  # for the processes that this one starts
        parser.add_argument(name, type=str if name == "--run" else Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(run_once(options)))
        return
    if options.work is None:
        parser.error("name a folder with --work")
    options.work.mkdir(parents=True, exist_ok=True)
    ways = make_ways(options.photos.resolve(), options.work.resolve())
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    for number in range(1, options.rounds + 1):
        for name, way in ways.items():
            found[name].append(way())
            print(f"round {number}: {name}: {found[name][-1]['seconds']:.2f} s", file=sys.stderr, flush=True)
    report(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
