"""The paths of this repository and its example pictures."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: The folders of the package.
ROOMS = ("package", "pipelines", "loader", "transforms", "core", "schemas")
#: The example pictures, for tests of what the pictures themselves are like and of pages that name them.
EXAMPLES = ROOT / "examples" / "photos"
#: Smaller copies with the same names, classes, formats and modes.
PHOTOS = Path(__file__).parent / "small_photos"
#: Settings of the fixture `sound_dataset`.
SETTINGS = {
    "resize": 64,
    "splits": "train=0.6,validation=0.2,test=0.2",
    "shards": "train=3,validation=1,test=1",
}


def put_script(path: Path, text: str) -> Path:
    """Writes a shell script in the place of a command."""
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return path


def ran(*command: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, and returns its exit code and what it printed."""
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, **options)


def copy_photos(folder: Path, step: int, photos: Path = PHOTOS) -> Path:
    """Copies every `step`-th picture, in the folder of its class, and returns the folder."""
    for path in sorted(photos.rglob("*.*"))[::step]:
        (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / path.parent.name)
    return folder


def copy_first(folder: Path, each: int, classes: Iterable[str]) -> Path:
    """Copies the first pictures of some classes, and returns the folder."""
    for name in classes:
        (folder / name).mkdir(parents=True)
        for path in sorted((PHOTOS / name).iterdir())[:each]:
            shutil.copy2(path, folder / name)
    return folder


def copy_source(folder: Path, *more: str) -> Path:
    """Copies what an installation needs, and more folders, because a build leaves files behind."""
    folder.mkdir(exist_ok=True)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for room in (*ROOMS, *more):
        ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
        shutil.copytree(ROOT / room, folder / room, ignore=ignored)
    return folder


def corpora(name: str = "") -> Path:
    """Returns the folder of real and hostile images, or a folder in it; skips the test if there is none."""
    root = os.environ.get("SHARDWRIGHT_CORPORA", "")
    if not root or not Path(root, name).is_dir():
        pytest.skip(f"SHARDWRIGHT_CORPORA names no folder with {name}/")
    return Path(root, name)
