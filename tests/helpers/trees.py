"""Writes the files of a test into a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def put_files(root: Path, files: Mapping[str, bytes | str]) -> Path:
    """Writes files, by their paths in a folder, and texts as UTF-8; returns the folder."""
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return root
