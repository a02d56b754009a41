"""The local disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from shardwright.transforms.storage.faults import changed
from shardwright.transforms.storage.objects import StoredObject


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
