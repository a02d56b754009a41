"""A folder for the temporary files of one command, or of a program that calls this library.

The folder is removed at the end of its process, or by the next command or call if that was killed.
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

#: Prefix of the names of these folders.
_PREFIX = "shardwright-run-"
#: The folder of each process that has called the library, by its pid: a forked one makes its own.
_folders: dict[int, str] = {}
#: Number of blocks of this process that use a folder.
_depth = 0
#: Prefix of the folders of Beam's job servers (`SubprocessJobServer.start`).
_JOB_SERVER = "beam-temp"


@contextlib.contextmanager
def own_temporary_folder() -> Iterator[None]:
    """Puts all temporary files of this process and its workers into a folder that is removed at the end.

    The folder is locked until its process ends, however it ends. So the next command recognizes the
    folders of killed commands, and removes them. If a folder cannot be created or locked, there is none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # the directory of temporary files is global to the process
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            base = tempfile.gettempdir()
            remove_abandoned(base)
            stack.enter_context(_used(_locked_folder(base, stack)))
        yield


@contextlib.contextmanager
def program_temporary_folder() -> Iterator[None]:
    """Puts the temporary files of a library call and its workers into a folder of this process.

    The folder stays until the process ends, since other threads may have put files into it. Within a
    command nothing changes.
    """
    if _depth or threading.current_thread() is not threading.main_thread():
        yield  # a command has its own folder
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(_used(_folder_of_process()))
        yield


def _folder_of_process() -> str:
    """Returns the folder of this process; creates and locks it at the first call.

    Raises:
      OSError: The folder cannot be created or locked.
    """
    pid = os.getpid()
    if not os.path.isdir(_folders.get(pid, "")):
        base = tempfile.gettempdir()
        remove_abandoned(base)
        with contextlib.ExitStack() as stack:
            _folders[pid] = _locked_folder(base, stack)
            stack.pop_all()  # the end of the process removes it
    return _folders[pid]


def _locked_folder(base: str, stack: contextlib.ExitStack) -> str:
    """Creates a folder, and locks it until the stack ends, or until the process ends if Beam still needs it.

    Raises:
      OSError: The folder cannot be created or locked.
    """
    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=base)
    held = contextlib.ExitStack()
    held.callback(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(held.close)
    stack.callback(_end, folder, held)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    held.callback(os.close, descriptor)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.stat(folder)  # another command may have removed it as abandoned before it was locked
    return folder


def _end(folder: str, held: contextlib.ExitStack) -> None:
    """Removes a folder, unless one of Beam's job servers runs in it.

    Beam stops its job servers when the process ends, and a server whose folder is gone is not stopped. Python
    calls exit handlers in reverse order, so the handler of the folder runs after those of the servers.
    """
    with contextlib.suppress(OSError):
        if any(name.startswith(_JOB_SERVER) for name in os.listdir(folder)):
            return
    held.close()
    atexit.unregister(held.close)


@contextlib.contextmanager
def _used(folder: str) -> Iterator[None]:
    """Makes this process and its workers put temporary files into a folder."""
    global _depth
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        tempfile.tempdir = before
        if variable is None:
            os.environ.pop("TMPDIR", None)
        else:
            os.environ["TMPDIR"] = variable


def remove_abandoned(base: str) -> None:
    """Removes the folders of commands that were killed.

    Args:
      base: Directory for temporary files.
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
