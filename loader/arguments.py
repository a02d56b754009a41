"""What arguments of the loader have in common."""

from __future__ import annotations

import os
from operator import index as as_int

from shardwright.schemas.errors import UsageError
from shardwright.transforms import storage


def at_least(least: int, value: object) -> bool:
    """Whether a value is a whole number, NumPy's or Python's, that is large enough."""
    try:
        return as_int(value) >= least  # type: ignore[arg-type]
    except TypeError:
        return False


def require_seed(seed: object) -> None:
    """Checks a seed.

    Raises:
      UsageError: if it is none.
    """
    if not at_least(0, seed):
        raise UsageError(f"seed {seed!r}: write a whole number from 0 on.")


def absolute(directory: str | os.PathLike[str]) -> str:
    """Returns where a directory is, whatever the working directory may be later.

    Raises:
      UsageError: if nothing is named.
    """
    path = os.fspath(directory)
    if not path:
        raise UsageError("The directory is an empty text; name the one that `shardwright convert` finished.")
    return path.rstrip("/") if storage.is_remote(path) else os.path.abspath(path)
