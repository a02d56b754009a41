"""Quotes paths in the commands that messages suggest."""

from __future__ import annotations

import shlex

from shardwright.schemas.image_ref import printable


def shell_word(path: str) -> str:
    """Returns a path in a form that can be pasted into a shell."""
    return shlex.quote(f"./{printable(path)}" if path.startswith("-") else printable(path))
