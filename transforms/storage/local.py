"""The local disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO


def read_bytes(path: str) -> bytes:
    """Reads a whole file."""
    return Path(path).read_bytes()


def exists(path: str) -> bool:
    """Whether a file or directory is there."""
    return os.path.lexists(path)


def write_bytes(path: str, data: bytes) -> None:
    """Writes a file: whole under another name, then renamed."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
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
