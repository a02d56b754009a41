"""Tells a command what its worker processes on this machine wait for.

Only the process knows that it waits, and only the command can show it. So each worker process that waits for
long keeps a small file in the command's folder for temporary files.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

#: Environment variable with the folder for the temporary files of the command.
SCRATCH_VARIABLE = "SHARDWRIGHT_SCRATCH"
#: A wait: path and seconds.
Wait = tuple[str, float]
_PREFIX, _SUFFIX = "waiting-", ".json"
#: Seconds of waiting after which the command shows a message, and seconds between two checks.
_SHOWN_AFTER, _PAUSE_SECONDS = 3.0, 1.0
#: Seconds after which a file is assumed to belong to a killed process.
_STALE_SECONDS = 10.0

_started_in = 0
_lock = threading.Lock()


def _folder_of_command() -> str:
    """Returns the folder of this worker process's command; empty in the command itself."""
    folder = os.environ.get(SCRATCH_VARIABLE, "")
    return folder if folder and folder != tempfile.tempdir else ""


def tell_command(longest: Callable[[], Wait | None]) -> None:
    """Starts to tell the command what this process waits for, if it is a worker process.

    Args:
      longest: function that returns the longest current wait of this process; None if it does not wait.
    """
    global _started_in
    if _started_in == os.getpid():
        return
    with _lock:
        if _started_in == os.getpid():
            return
        _started_in = os.getpid()
    folder = _folder_of_command()
    if folder:
        threading.Thread(target=_keep_telling, args=(folder, longest), name="waits", daemon=True).start()


def _keep_telling(folder: str, longest: Callable[[], Wait | None]) -> None:
    while os.path.isdir(folder):
        with contextlib.suppress(OSError):
            write_wait(folder, longest())
        time.sleep(_PAUSE_SECONDS)


def write_wait(folder: str, wait: Wait | None) -> None:
    """Writes the current wait of this process to its file, or removes the file.

    Args:
      folder: folder of the command.
      wait: the current wait; None if the process does not wait.

    Raises:
      OSError: if the file cannot be written.
    """
    path = os.path.join(folder, f"{_PREFIX}{os.getpid()}{_SUFFIX}")
    if wait is None or wait[1] < _SHOWN_AFTER:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    Path(f"{path}.tmp").write_text(json.dumps(wait))
    os.replace(f"{path}.tmp", path)


def waits_of_workers() -> Iterator[Wait]:
    """Yields the current wait of each worker process of this command."""
    folder = os.environ.get(SCRATCH_VARIABLE, "")
    if not folder or folder != tempfile.tempdir:
        return
    for path in Path(folder).glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            age = time.time() - path.stat().st_mtime
            place, seconds = json.loads(path.read_text())
            if age < _STALE_SECONDS:
                yield str(place), float(seconds)
