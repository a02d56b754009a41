"""Writes what a command found to the place that it was told."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import printable
from shardwright.transforms import storage
from shardwright.transforms.lease import HeldLease, write_held

#: What the name of a file ends with that a worker writes for the command alone; it removes it itself.
_ANSWER = ".answer"
#: Seconds after which such a file was left by a command that was killed.
_ANSWER_SECONDS = 3600.0


def answer_path(result: str) -> str:
    """Returns a fresh path beside a file of results, for a copy that only this command reads."""
    return storage.unfinished(f"{result}{_ANSWER}")


def remove_unfinished(results: Iterable[str]) -> None:
    """Removes what killed commands left beside files of results, as far as that is possible.

    These are on a local disk only: an object appears whole or not at all. A file that another process is
    writing at this moment may be among them; its writer then writes it once more (`storage.write_bytes`).

    Args:
      results: paths of files of results, which need not be there.
    """
    for result in results:
        if not result or storage.is_remote(result):
            continue
        folder, name = os.path.split(result)
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(folder or ".")):
                if not entry.name.startswith(f"{name}.") or not storage.is_temporary(entry.name):
                    continue
                is_answer = entry.name.startswith(f"{name}{_ANSWER}.")
                if not is_answer or time.time() - entry.stat().st_mtime > _ANSWER_SECONDS:
                    os.unlink(entry.path)


def write_result(
    path: str, data: bytes, option: str, what: str = "report", hold: HeldLease | None = None
) -> None:
    """Writes a file of results.

    Args:
      path: where to.
      data: its content.
      option: that names the place, for the advice.
      what: it is.
      hold: the lease that has to be held for that; None where anybody may write.

    Raises:
      EngineError: if it cannot be written.
    """
    try:
        write_held(*os.path.split(path), data, hold)
    except OSError as error:
        raise EngineError(
            f"Cannot write the {what} to {printable(path)}: {(error.strerror or str(error)).lower()}; "
            f"choose another place with {option}."
        ) from error
