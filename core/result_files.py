"""Writes the results of a command to the path that the user gave."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable

from shardwright.core import storage
from shardwright.core.lease import HeldLease, write_held
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import printable

#: Suffix of a file that a worker writes only for the command, which removes it.
_ANSWER = ".answer"
_ANSWER_NAME = re.compile(rf"{re.escape(_ANSWER)}\.[0-9a-f]{{32}}\.tmp\Z")
#: Age in seconds at which such a file must belong to a command that was killed.
_ANSWER_SECONDS = 3600.0


def answer_path(result: str) -> str:
    """Returns a new path beside a result file, for a copy that only this command reads."""
    return storage.unfinished(f"{result}{_ANSWER}")


def is_answer(path: str) -> bool:
    """Returns whether `answer_path` made a path."""
    return bool(_ANSWER_NAME.search(path))


def was_left(entry: os.DirEntry[str]) -> bool:
    """Returns whether a killed command left an unfinished file.

    A process that is writing an unfinished file now writes it again if it is removed. An answer is not
    written again, so it counts as left only after an hour.

    Args:
      entry: A file.

    Raises:
      OSError: If the age of the file cannot be read.
    """
    if not storage.is_temporary(entry.name):
        return False
    return not is_answer(entry.name) or time.time() - entry.stat().st_mtime > _ANSWER_SECONDS


def remove_unfinished(results: Iterable[str]) -> None:
    """Tries to remove the files that killed commands left beside result files.

    Only local disks have them: an object in a bucket appears whole or not at all. One of them may belong to a
    process that is writing now. That process then writes its file again (`storage.write_bytes`).

    Args:
      results: Paths of result files. The files need not exist.
    """
    for result in results:
        if not result or storage.is_remote(result):
            continue
        folder, name = os.path.split(result)
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(folder or ".")):
                if entry.name.startswith(f"{name}.") and was_left(entry):
                    os.unlink(entry.path)


def write_result(
    path: str, data: bytes, option: str, what: str = "report", hold: HeldLease | None = None
) -> None:
    """Writes a result file.

    Args:
      path: Path of the file.
      data: Contents of the file.
      option: Option that sets the path, for the advice in the error message.
      what: Word for the file in the error message.
      hold: Lease that the run must hold. None if it needs no lease.

    Raises:
      EngineError: If the file cannot be written.
    """
    try:
        write_held(*os.path.split(path), data, hold)
    except OSError as error:
        raise EngineError(
            f"Cannot write the {what} to {printable(path)}: {(error.strerror or str(error)).lower()}; "
            f"choose another place with {option}."
        ) from error
