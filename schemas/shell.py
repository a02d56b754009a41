"""Paths in the commands that messages tell people to run."""

from __future__ import annotations

import shlex

from shardwright.schemas.image_ref import printable


def shell_word(path: str) -> str:
    """Returns a path as it can be pasted into a shell."""
    return shlex.quote(f"./{printable(path)}" if path.startswith("-") else printable(path))
