"""Compares a conversion from archives with the same conversion from the original folder.

The archives are in a temporary folder. Runs take turns, each in its own process, and all must produce the
same images.
"""

from __future__ import annotations

import argparse
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from command import Benchmark, Found, run_benchmark
from conversion import UNITS, convert_once
from inputs import photos
from rounds import Turn, summarize, take_turns

FOLDER = "folder"
KINDS = (FOLDER, "zip, stored", "zip, deflated", "tar", "tar.gz")


def make_archive(photos: Path, kind: str, folder: Path) -> Path:
    """Packs a folder, with files sorted by name; returns the archive."""
    files = sorted(path for path in photos.rglob("*") if path.is_file())
    if kind.startswith("zip"):
        made = folder / f"{kind.replace(', ', '-')}.zip"
        method = zipfile.ZIP_DEFLATED if "deflated" in kind else zipfile.ZIP_STORED
        with zipfile.ZipFile(made, "w", method) as archive:
            for path in files:
                archive.write(path, path.relative_to(photos))
        return made
    made = folder / f"photos.{kind}"
    with tarfile.open(made, "w:gz" if kind == "tar.gz" else "w", format=tarfile.GNU_FORMAT) as tar:
        for path in files:
            tar.add(path, path.relative_to(photos))
    return made


def measure(options: argparse.Namespace) -> Found:
    """Converts the folder and the archives in turn."""
    given = photos(options, options.count)
    with tempfile.TemporaryDirectory() as scratch:
        sources = {
            kind: given.folder if kind == FOLDER else make_archive(given.folder, kind, Path(scratch))
            for kind in KINDS
        }

        def way(source: Path) -> Callable[[], Turn]:
            return lambda: convert_counted(source, given.count)

        found = take_turns({kind: way(source) for kind, source in sources.items()}, options.rounds)
    return Found(given.text, summarize(found, UNITS, dict.fromkeys(KINDS, FOLDER)))


def convert_counted(source: Path, count: int) -> Turn:
    """Converts and measures; fails if not all images arrived."""
    converted = convert_once(source)
    if converted.dataset["ledger"]["written"] != count:
        raise SystemExit(f"{source} gave {converted.dataset['ledger']['written']} records of {count}.")
    return converted.turn()


BENCHMARK = Benchmark(
    "archives",
    "Compares a conversion from archives with the same conversion from the original folder.",
    measure,
    quick={"count": 600, "rounds": 1},
    full={"count": 3000, "rounds": 5},
)

if __name__ == "__main__":
    raise SystemExit(run_benchmark(BENCHMARK))
