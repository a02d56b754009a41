"""The local disk."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import IO

from shardwright.core.storage.faults import changed
from shardwright.core.storage.store import ListedPage, ObjectTooLarge, Store, StoredObject
from shardwright.schemas.errors import EngineError

#: Errors if a file cannot get a second name: another disk or owner, too many names, no links on the disk.
_NO_LINKS = frozenset(
    (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES)
)
#: Seconds to wait for a lock, which is normally released within milliseconds.
LOCK_SECONDS, _LOCK_PAUSE = 60.0, 0.005
#: File that stays behind in directories that cannot be locked themselves. Checks of an output pass over names
#: that begin like that of a lease.
_LOCK_FILE = "lease.json.lock"


class LocalStore(Store):
    """The local disk. The version of a file is the time of its last change, and for `write_if` its digest."""

    def pages(self, directory: str, deep: bool) -> Iterator[ListedPage]:
        """Yields the files of each folder."""
        for folder, folders, names in os.walk(directory.rstrip("/") or directory):
            files = []
            for name in names:
                path = os.path.join(folder, name)
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    files.append(_stored(path, os.lstat(path)))
            yield ListedPage(files, folders, "")
            if not deep:
                return

    def read(self, path: str, version: str = "", limit: int = -1) -> bytes:
        """Reads a file; pipes and devices, which may never end, raise an OSError."""
        with open_local(path) as file:
            data = file.read(limit + 1 if limit >= 0 else -1)
        if 0 <= limit < len(data):
            raise ObjectTooLarge
        return data

    def read_range(self, path: str, offset: int, length: int, size: int = -1, version: str = "") -> bytes:
        """Reads a range of a file.

        Raises:
          EngineError: If the file is not as it was listed.
        """
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            _check_regular(descriptor, path)
            data = read_fully(descriptor, offset, length)
            status = os.fstat(descriptor)
            if size >= 0 and (status.st_size != size or version not in ("", local_version(status))):
                raise changed(path)
            return data
        finally:
            os.close(descriptor)

    def write(self, path: str, data: bytes, inside: str = "") -> None:
        """Writes a file under another name, then renames it; `inside` is not made if it is missing."""
        _write(path, lambda file: file.write(data), inside)

    def write_if(self, path: str, data: bytes, version: str | None) -> bool:
        """Writes a file if its content still has a digest."""
        folder = os.path.dirname(path) or "."
        if version is None:
            make_dirs(folder)
        try:
            with alone_in(folder):
                if (digest_of(self.read(path)) if os.path.exists(path) else None) != version:
                    return False
                self.write(path, data, folder)
        except (FileNotFoundError, NotADirectoryError):  # the folder is gone and is not made again
            return False
        return True

    def delete(self, path: str) -> None:
        """Removes a file."""
        os.unlink(path)

    def stat(self, path: str) -> StoredObject:
        """Returns the metadata of a file."""
        return _stored(path, os.stat(path))


def _stored(path: str, status: os.stat_result) -> StoredObject:
    return StoredObject(path, status.st_size, local_version(status), modified=status.st_mtime)


def open_local(path: str) -> IO[bytes]:
    """Opens a file; pipes and devices, which may never end, raise an OSError."""
    _check_regular(path, path)  # before it is opened: a pipe would have to be waited for
    return open(path, "rb")


def _check_regular(file: int | str, path: str) -> None:
    """Checks that a file, open or not, is a regular file.

    Raises:
      OSError: If it is a pipe, a device or a folder.
    """
    mode = os.stat(file).st_mode
    if S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not S_ISREG(mode):
        raise OSError(errno.ENODEV, "it is a pipe or a device, not a file", path)


def digest_of(data: bytes) -> str:
    """Returns the digest of a file's content, by which `write_if` knows it."""
    return hashlib.sha256(data).hexdigest()


def unfinished(path: str) -> str:
    """Returns a new name beside a path, for a file that is still being written."""
    return f"{path}.{uuid.uuid4().hex}.tmp"


def make_dirs(path: str, inside: str = "") -> None:
    """Makes a directory and its parents.

    Args:
      path: Path of the directory.
      inside: Parent directory that must exist; empty to make all of them.

    Raises:
      FileNotFoundError: If `inside` is missing.
    """
    if not inside:
        os.makedirs(path or ".", exist_ok=True)
        return
    if not os.path.isdir(inside):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), inside)
    folder = inside
    for part in os.path.relpath(path, inside).split(os.sep):
        folder = os.path.join(folder, part)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)


@contextlib.contextmanager
def removed_on_failure(temporary: str) -> Iterator[None]:
    """Removes a temporary file, if possible, when the block fails."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _write(path: str, fill: Callable[[IO[bytes]], object], inside: str = "") -> None:
    """Has a function fill a file. Tries again if a rebuild removes it as a leftover of a killed run."""
    for last in (False, True):
        make_dirs(os.path.dirname(path), inside)
        temporary = unfinished(path)
        try:
            with removed_on_failure(temporary):
                with open(temporary, "wb") as file:
                    fill(file)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, path)
            return
        except FileNotFoundError:
            if last:
                raise


@contextlib.contextmanager
def alone_in(directory: str) -> Iterator[None]:
    """Holds the lock of a directory, which leaves nothing behind even if its holder is killed.

    Raises:
      FileNotFoundError: If there is no such directory.
      EngineError: If another process does not let go of it.
    """
    deadline, place = time.monotonic() + LOCK_SECONDS, directory
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if place != directory or os.path.samestat(os.fstat(descriptor), os.stat(directory)):
                    break
                os.close(descriptor)  # another directory has replaced it
                descriptor = -1
                descriptor = os.open(directory, os.O_RDONLY)
            except OSError as error:
                if error.errno == errno.EBADF:  # NFS locks only what is open for writing, and so no directory
                    os.close(descriptor)
                    place = os.path.join(directory, _LOCK_FILE)
                    descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o666)
                elif error.errno not in (errno.EAGAIN, errno.EACCES, errno.EINTR):
                    raise
                elif time.monotonic() > deadline:
                    raise EngineError(
                        f"Cannot lock {directory}: another process has held its lock for {LOCK_SECONDS:.0f} "
                        f"seconds; end that process (`fuser {directory}`), then run again."
                    ) from None
                else:
                    time.sleep(_LOCK_PAUSE)
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def link(source: str, target: str, inside: str = "") -> None:
    """Gives a file a second name on this disk, or copies it if that is not possible.

    A file that is already at the target is replaced. Nothing may change a file in place that has two names.
    `inside` is not made if it is missing.
    """
    make_dirs(os.path.dirname(target), inside)
    source, temporary = os.path.realpath(source), unfinished(target)
    try:
        os.link(source, temporary)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with open(source, "rb") as file:
            _write(target, lambda copy: shutil.copyfileobj(file, copy), inside)
        return
    try:
        os.replace(temporary, target)
    finally:
        Path(temporary).unlink(missing_ok=True)  # still there if both are one file already


def local_version(status: os.stat_result) -> str:
    """Returns the mark of a local file's state: its modification time in ns."""
    return str(status.st_mtime_ns)


def read_fully(descriptor: int, offset: int, length: int) -> bytes:
    """Reads a range of an open file; the result is shorter at the end of the file."""
    chunks = []
    while length and (chunk := os.pread(descriptor, length, offset)):
        chunks.append(chunk)
        length -= len(chunk)
        offset += len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
