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
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import printable
from shardwright.transforms.storage.faults import changed
from shardwright.transforms.storage.objects import StoredObject

#: Why a file may get no second name: another disk, another owner, too many names, a disk without links.
_NO_LINKS = frozenset(
    (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES)
)
#: For how long another process may hold a lock that everybody lets go of in milliseconds.
_LOCK_SECONDS, _LOCK_PAUSE = 60.0, 0.005
_LOCK_FILE = ".lock"


def read_bytes(path: str) -> bytes:
    """Reads a whole file."""
    return Path(path).read_bytes()


def exists(path: str) -> bool:
    """Whether a file or directory is there."""
    return os.path.lexists(path)


def unfinished(path: str) -> str:
    """Returns a fresh name beside a path, for what is not the file itself yet."""
    return f"{path}.{uuid.uuid4().hex}.tmp"


def write_bytes(path: str, data: bytes) -> None:
    """Writes a file: whole under another name, then renamed."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    temporary = unfinished(path)
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def read_tagged(path: str) -> tuple[bytes, str] | None:
    """Reads a file and the digest of what is in it; None if there is none."""
    try:
        data = read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return data, hashlib.sha256(data).hexdigest()


def write_tagged(path: str, data: bytes, tag: str | None) -> bool:
    """Writes a file if its content is still of a digest; None if it must not be there."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with _alone_in(os.path.dirname(path) or "."):
        found = read_tagged(path)
        if (found and found[1]) != tag:
            return False
        write_bytes(path, data)
    return True


def remove_tagged(path: str, tag: str) -> bool:
    """Removes a file if its content is still of a digest."""
    if not os.path.lexists(path):
        return True
    with _alone_in(os.path.dirname(path) or "."):
        found = read_tagged(path)
        if found and found[1] != tag:
            return False
        remove(path)
    return True


@contextlib.contextmanager
def _alone_in(directory: str) -> Iterator[None]:
    """Holds a directory's lock, of which nothing stays behind, not even when its holder is killed."""
    deadline = time.monotonic() + _LOCK_SECONDS
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno == errno.EBADF:  # NFS locks only what is open for writing, and so no directory
                    os.close(descriptor)
                    place = os.path.join(directory, _LOCK_FILE)
                    descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o666)
                elif error.errno not in (errno.EAGAIN, errno.EACCES, errno.EINTR):
                    raise
                elif time.monotonic() > deadline:
                    raise EngineError(
                        f"Cannot lock {printable(directory)}: another process has held its lock for "
                        f"{_LOCK_SECONDS:.0f} seconds; end that process (`fuser {printable(directory)}`), "
                        "then run again."
                    ) from None
                else:
                    time.sleep(_LOCK_PAUSE)
        yield
    finally:
        os.close(descriptor)


def link(source: str, target: str) -> None:
    """Gives a file a second name, on this disk; a copy where that cannot be.

    What is at the target already is replaced. Nothing may change a file in place that has two names.
    """
    os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
    source, temporary = os.path.realpath(source), unfinished(target)
    try:
        try:
            os.link(source, target)
            return
        except FileExistsError:
            if os.path.samefile(source, target):
                return
            os.link(source, temporary)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if _is_copy(source, target):
            return
        _copy(source, temporary)
    try:
        os.replace(temporary, target)
    finally:
        remove(temporary)  # still there if both are one file since


def _is_copy(source: str, target: str) -> bool:
    """Whether a copy has been made before; it has the time of its original."""
    try:
        one, other = os.stat(source), os.stat(target)
    except FileNotFoundError:
        return False
    return (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)


def _copy(source: str, temporary: str) -> None:
    try:
        shutil.copyfile(source, temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        status = os.stat(source)
        os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
    except BaseException:
        remove(temporary)
        raise


def publish(temporary: str, path: str) -> None:
    """Renames a finished file."""
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)


def local_version(status: os.stat_result) -> str:
    """Returns the mark of a local file's state: its modification time in ns."""
    return str(status.st_mtime_ns)


def read_fully(descriptor: int, offset: int, length: int) -> bytes:
    """Reads a stretch of an open file; less of it at the file's end."""
    chunks = []
    while length and (chunk := os.pread(descriptor, length, offset)):
        chunks.append(chunk)
        length -= len(chunk)
        offset += len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def read_range(path: str, offset: int, length: int, size: int = -1, version: str = "") -> bytes:
    """Reads a stretch of a file; less of it at the file's end.

    Raises:
      EngineError: if the file is not as it was listed.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        if size >= 0:
            status = os.fstat(descriptor)
            if status.st_size != size or (version and local_version(status) != version):
                raise changed(path)
        return read_fully(descriptor, offset, length)
    finally:
        os.close(descriptor)


def stat(path: str) -> StoredObject | None:
    """Returns what the disk tells of a file, None if there is none."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return StoredObject(path, status.st_size, local_version(status))


@contextlib.contextmanager
def open_local(path: str) -> Iterator[IO[bytes]]:
    """Opens a file."""
    with open(path, "rb") as file:
        yield file


def list_files(directory: str) -> list[str]:
    """Returns the paths of all files below a directory, relative to it."""
    found = []
    for folder, _, names in os.walk(directory):
        relative = os.path.relpath(folder, directory)
        found += [name if relative == "." else f"{relative}/{name}" for name in names]
    return sorted(found)


def remove(path: str) -> None:
    """Removes a file if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_tree(directory: str) -> None:
    """Removes a directory, but nothing that a symbolic link points to."""
    if os.path.isdir(directory) and not os.path.islink(directory):
        shutil.rmtree(directory)
