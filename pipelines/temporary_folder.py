"""A folder for the temporary files of one command. It goes with it, or with the next one if it was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator

from shardwright.transforms.storage import SCRATCH_VARIABLE

#: What the names of these folders begin with.
_PREFIX = "shardwright-run-"


@contextlib.contextmanager
def own_temporary_folder() -> Iterator[None]:
    """Has all temporary files of this process and its workers lie in a folder that is removed at the end.

    The folder is locked as long as its process lives, whatever ends it. So the next command can tell the
    folders of killed ones, and removes them. Where a folder cannot be made or locked there is none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # where temporary files lie is a matter of the whole process
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            base = tempfile.gettempdir()
            remove_abandoned(base)
            stack.enter_context(_used(_locked_folder(base, stack)))
        yield


def _locked_folder(base: str, stack: contextlib.ExitStack) -> str:
    """Makes a folder and locks it; both end with the stack.

    Raises:
      OSError: if it cannot be made or locked.
    """
    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=base)
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.stat(folder)  # another command may have taken it for abandoned before it was locked
    return folder


@contextlib.contextmanager
def _used(folder: str) -> Iterator[None]:
    """Has this process and its workers put temporary files into a folder."""
    before, variable = tempfile.tempdir, os.environ.get(SCRATCH_VARIABLE)
    tempfile.tempdir = os.environ[SCRATCH_VARIABLE] = folder
    try:
        yield
    finally:
        tempfile.tempdir = before
        if variable is None:
            os.environ.pop(SCRATCH_VARIABLE, None)
        else:
            os.environ[SCRATCH_VARIABLE] = variable


def remove_abandoned(base: str) -> None:
    """Removes the folders of commands that were killed.

    Args:
      base: the directory for temporary files.
    """
    with os.scandir(base) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(_PREFIX)]
    for folder in found:
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
