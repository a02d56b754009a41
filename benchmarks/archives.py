"""Compares a conversion from archives with the same conversion from the original folder.

The archives are in a temporary folder. Runs take turns, each in its own process, and all must produce the
same images. The time of the phase that reads and converts is compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from measure import run_measured

_TIMEOUT = 1800.0
_KINDS = ("folder", "zip", "zip-deflated", "tar", "tar.gz")


def make_archive(photos: Path, kind: str, folder: Path) -> Path:
    """Packs a folder, with files sorted by name; returns the archive."""
    files = sorted(path for path in photos.rglob("*") if path.is_file())
    if kind.startswith("zip"):
        made = folder / f"{kind}.zip"
        method = zipfile.ZIP_DEFLATED if kind == "zip-deflated" else zipfile.ZIP_STORED
        with zipfile.ZipFile(made, "w", method) as archive:
            for path in files:
                archive.write(path, path.relative_to(photos))
        return made
    made = folder / f"photos.{kind}"
    with tarfile.open(made, "w:gz" if kind == "tar.gz" else "w", format=tarfile.GNU_FORMAT) as tar:
        for path in files:
            tar.add(path, path.relative_to(photos))
    return made


def measure(source: Path, options: list[str]) -> dict[str, Any]:
    """Converts once; returns the measurements."""
    program = Path(sys.executable).with_name("shardwright")
    with tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "out"
        command = [str(program), "convert", f"--input={source}", f"--output={output}", *options]
        measured = run_measured(command, Path(scratch) / "log", _TIMEOUT)
        if measured.exit_code:
            raise SystemExit((Path(scratch) / "log").read_text(errors="replace")[-2000:])
        run = json.loads((output / "run.json").read_text())
        dataset = json.loads((output / "dataset.json").read_text())
    return {
        "seconds": measured.seconds,
        "convert_seconds": run["convert_seconds"],
        "peak_mb": measured.peak_mb,
        "records": dataset["ledger"]["written"],
    }


def main() -> int:
    """Runs the rounds and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--photos", type=Path, required=True, help="a folder of class folders")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("options", nargs="*", help="further options of shardwright convert, after --")
    arguments = parser.parse_args()
    options = arguments.options or ["--resize=224", "--shards=8"]
    with tempfile.TemporaryDirectory() as folder:
        sources = {
            kind: arguments.photos if kind == "folder" else make_archive(arguments.photos, kind, Path(folder))
            for kind in _KINDS
        }
        runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in _KINDS}
        for _ in range(arguments.rounds):
            for kind, source in sources.items():
                runs[kind].append(measure(source, options))
    report(runs)
    return 0


def report(runs: dict[str, list[dict[str, Any]]]) -> None:
    """Prints the medians, and their ratios to the median of the folder."""
    if len({run["records"] for of_one in runs.values() for run in of_one}) != 1:
        raise SystemExit("The datasets have different numbers of records.")

    def median(name: str, kind: str) -> float:
        return statistics.median(run[name] for run in runs[kind])

    for kind, of_one in runs.items():
        seconds, working = median("seconds", kind), median("convert_seconds", kind)
        # Compares neighboring runs, because the state of the machine changes slowly.
        paired = statistics.median(
            folder["convert_seconds"] / run["convert_seconds"] for folder, run in zip(runs["folder"], of_one)
        )
        peak = max(run["peak_mb"] for run in of_one)
        print(
            f"{kind:12} {seconds:6.2f} s whole, {working:6.2f} s converting, "
            f"{of_one[0]['records'] / working:5.0f} images/s, {peak:.0f} MB; "
            f"{median('convert_seconds', 'folder') / working:.2f} of the folder's speed "
            f"(pairs: {paired:.2f}), whole {median('seconds', 'folder') / seconds:.2f}"
        )


if __name__ == "__main__":
    sys.exit(main())
