"""What worker processes of this machine wait for, told to the command that started them.

Only a process itself knows what it waits for, and only the command has a line of progress to show it in. So
each worker process that waits for long keeps a small file in the command's folder for temporary files.
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

#: An environment variable: where worker processes put the temporary files of their command.
SCRATCH_VARIABLE = "SHARDWRIGHT_SCRATCH"
#: Path and seconds of a wait.
Wait = tuple[str, float]
_PREFIX, _SUFFIX = "waiting-", ".json"
#: Seconds of waiting after which the command is told, and between two looks.
_TOLD_AFTER, _PAUSE_SECONDS = 3.0, 1.0
#: Seconds after which a file is of a process that was killed.
_STALE_SECONDS = 10.0

_started_in = 0
_lock = threading.Lock()


def _folder_of_command() -> str:
    """Returns the folder of the command that this process works for; empty in the command itself."""
    folder = os.environ.get(SCRATCH_VARIABLE, "")
    return folder if folder and folder != tempfile.tempdir else ""


def tell_command(longest: Callable[[], Wait | None]) -> None:
    """Begins to tell the command what this process waits for, if it is a worker process.

    Args:
      longest: returns what this process has waited for the longest; None if it does not wait.
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
    """Writes what this process waits for, or removes the file that says so.

    Args:
      folder: of the command.
      wait: what is waited for; None for nothing.

    Raises:
      OSError: if it cannot be written.
    """
    path = os.path.join(folder, f"{_PREFIX}{os.getpid()}{_SUFFIX}")
    if wait is None or wait[1] < _TOLD_AFTER:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    Path(f"{path}.tmp").write_text(json.dumps(wait))
    os.replace(f"{path}.tmp", path)


def waits_of_workers() -> Iterator[Wait]:
    """Yields what each worker process of this command waits for."""
    folder = os.environ.get(SCRATCH_VARIABLE, "")
    if not folder or folder != tempfile.tempdir:
        return
    for path in Path(folder).glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            age = time.time() - path.stat().st_mtime
            place, seconds = json.loads(path.read_text())
            if age < _STALE_SECONDS:
                yield str(place), float(seconds)
