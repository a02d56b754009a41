"""The images that the benchmarks process: made once, kept in the work folder, and described in words."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
WORK = HERE.parent / "build" / "bench"


@dataclass(frozen=True)
class Photos:
    """Images to process.

    Attributes:
      folder: Folder of class folders with JPEGs.
      count: Number of images.
      text: Number, size and origin in words.
    """

    folder: Path
    count: int
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say where the images come from."""
    parser.add_argument(
        "--photos", type=Path, help="process this folder of class folders, instead of made images"
    )
    parser.add_argument(
        "--source", type=Path, help="photographs to cut the images from (default: generate them)"
    )
    parser.add_argument("--work", type=Path, default=WORK, help="folder for what is made; it is kept")


def photos(options: argparse.Namespace, count: int, *make: str) -> Photos:
    """Returns the images to process; makes them if they do not exist yet.

    Args:
      options: Parsed options.
      count: Number of images.
      make: Further arguments of make_photos.py, such as "--megapixels=8".

    Raises:
      SystemExit: If the folder that was named has no images, or they cannot be made.
    """
    folder, origin = options.photos, "given"
    if folder is None:
        origin = f"cut from {options.source.name}" if options.source else "generated"
        words = [origin.split()[-1], str(count), *(word.lstrip("-").replace("=", "") for word in make)]
        folder = options.work / "-".join(words)
        if not folder.exists():
            _make(
                folder,
                [f"--count={count}", *([f"--source={options.source}"] if options.source else []), *make],
            )
    folder = folder.resolve()
    sizes = [
        entry.stat().st_size
        for group in os.scandir(folder)
        if group.is_dir()
        for entry in os.scandir(group.path)
    ]
    if not sizes:
        raise SystemExit(f"{folder} has no class folders with images; name another folder with --photos.")
    pixels = next((word.partition("=")[2] for word in make if "mega" in word or "pieces" in word), "")
    kind = f"of {pixels} megapixels" if pixels and "x" not in pixels else f"of {pixels or 'about 500x400'}"
    each = sum(sizes) / len(sizes) / 1000
    kind = "" if origin == "given" else f" {kind}"
    return Photos(
        folder,
        len(sizes),
        f"{len(sizes):,} JPEGs{kind}, {each:,.{0 if each >= 10 else 1}f} kB each, {origin}",
    )


def _make(folder: Path, arguments: list[str]) -> None:
    print(f"making {folder.name}", file=sys.stderr, flush=True)
    unfinished = folder.with_name(f"{folder.name}-unfinished-{os.getpid()}")
    program = [sys.executable, str(HERE / "make_photos.py"), str(unfinished), *arguments]
    if subprocess.run(program, stdout=sys.stderr).returncode:
        raise SystemExit(f"The images for {folder} could not be made; the reason is above.")
    unfinished.rename(folder)
