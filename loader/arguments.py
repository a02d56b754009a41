"""Checks of arguments that several parts of the loader take."""

from __future__ import annotations

import os
from operator import index as as_int

from shardwright.core import storage
from shardwright.schemas.errors import UsageError


def at_least(least: int, value: object) -> bool:
    """Returns whether a value is an integer of Python or NumPy, and not below a minimum."""
    try:
        return as_int(value) >= least  # type: ignore[arg-type]
    except TypeError:
        return False


def require_seed(seed: object) -> None:
    """Checks a seed.

    Raises:
      UsageError: if it is not a valid seed.
    """
    if not at_least(0, seed):
        raise UsageError(f"seed {seed!r}: write a whole number from 0 on.")


def absolute(directory: str | os.PathLike[str]) -> str:
    """Returns the absolute path of a directory, which stays valid if the working directory changes.

    Raises:
      UsageError: if the name is empty.
    """
    path = os.fspath(directory)
    if not path:
        raise UsageError(
            "The directory is an empty string; name the one that `shardwright convert` finished."
        )
    return path.rstrip("/") if storage.is_remote(path) else os.path.abspath(path)
