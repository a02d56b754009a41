"""Checks the paths of result files before a long run."""

from __future__ import annotations

import os

from shardwright.core import storage
from shardwright.schemas.errors import EngineError, UsageError
from shardwright.schemas.image_ref import printable


def nearest_existing(path: str) -> str:
    """Returns a path if it exists, or else the nearest parent that exists."""
    path = os.path.abspath(path)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def check_result_place(option: str, path: str) -> None:
    """Checks that a file can be written, without writing it.

    Args:
      option: Option that names the file, or could name another.
      path: Path of the file; empty if no file is written.

    Raises:
      UsageError: The storage is unknown, or the path cannot be a file.
      EngineError: The path is not writable.
    """
    storage.require_known(option, path)
    if not path or storage.is_remote(path):
        return
    shown = printable(path)
    if path.endswith("/") or os.path.isdir(path):
        raise UsageError(f"{option} {shown} is a directory; name a file in it.")
    if os.path.exists(path) and not os.path.isfile(path):  # a rename would replace a device by a file
        raise UsageError(f"{option} {shown} is a device or a pipe; name a file.")
    folder = nearest_existing(os.path.dirname(os.path.abspath(path)))
    if not os.path.isdir(folder):
        raise UsageError(f"{option} {shown}: {printable(folder)} is not a directory; choose another place.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise EngineError(
            f"Cannot write {shown}: {printable(folder)} is not writable; choose another place with {option}."
        )
