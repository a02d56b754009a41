"""Writes the results of a command to the path that the user gave."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from shardwright.core import storage
from shardwright.core.lease import HeldLease, write_held
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import printable


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
                if entry.name.startswith(f"{name}.") and storage.is_temporary(entry.name):
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
