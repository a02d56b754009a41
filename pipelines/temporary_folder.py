"""A folder for the temporary files of this process and its workers.

It is removed at the end of the process, or by the next command or call if that was killed.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from functools import cache

_PREFIX = "shardwright-run-"


@contextlib.contextmanager
def own_temporary_folder() -> Iterator[None]:
    """Puts all temporary files of the block and of its child processes into a folder of this process.

    If the folder cannot be created or locked, or in another thread than the main one, nothing changes.
    """
    base = tempfile.gettempdir()
    folder = base
    if threading.current_thread() is threading.main_thread() and _PREFIX not in base:
        with contextlib.suppress(OSError):
            folder = _folder_in(base, os.getpid())
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    if folder != base:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        if folder != base:
            tempfile.tempdir = before
            os.environ.pop("TMPDIR")
            if variable is not None:
                os.environ["TMPDIR"] = variable


@cache
def _folder_in(base: str, pid: int) -> str:
    """Creates the folder of a process, and locks it until the process ends, however it ends.

    Other threads, and Beam's job servers, may use the folder until then.

    Raises:
      OSError: The folder cannot be created or locked.
    """
    _remove_abandoned(base)
    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=base)

    def remove() -> None:
        if os.getpid() == pid:  # not a fork
            shutil.rmtree(folder, ignore_errors=True)

    try:
        fcntl.flock(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(folder)  # another process may have removed it as abandoned before it was locked
    except OSError:
        remove()
        raise
    atexit.register(remove)  # runs after the handlers with which Beam stops job servers that need the folder
    return folder


def _remove_abandoned(base: str) -> None:
    """Removes the folders of processes that were killed.

    Args:
      base: Directory for temporary files.
    """
    with os.scandir(base) as entries:
        folders = [entry.path for entry in entries if entry.name.startswith(_PREFIX)]
    for folder in folders:
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
