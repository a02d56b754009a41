"""Checks where a command shall write what it found, before it looks for hours."""

from __future__ import annotations

import os

from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.image_ref import printable
from shardwright.transforms import storage


def nearest_existing(path: str) -> str:
    """Returns a path or, if there is no such thing, the nearest above it that there is."""
    path = os.path.abspath(path)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def check_result_place(option: str, path: str) -> None:
    """Checks that a file can be written, as far as that can be told without writing it.

    Args:
      option: that names it, or would name another.
      path: of the file; an empty one is not written.

    Raises:
      UsageError: if there is no such storage, or the path can be no file's.
      EngineError: if nobody may write there.
    """
    storage.require_known(option, path)
    if not path or storage.is_remote(path):
        return
    shown = printable(path)
    if path.endswith("/") or os.path.isdir(path):
        raise UsageError(f"{option} {shown} is a directory; name a file in it.")
    if os.path.exists(path) and not os.path.isfile(path):  # written by a rename, a device would be no more
        raise UsageError(f"{option} {shown} is a device or a pipe; name a file.")
    folder = nearest_existing(os.path.dirname(os.path.abspath(path)))
    if not os.path.isdir(folder):
        raise UsageError(f"{option} {shown}: {printable(folder)} is no directory; choose another place.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise EngineError(
            f"Cannot write {shown}: {printable(folder)} is not writable; choose another place with {option}."
        )
