"""Walks a folder on a disk and follows its links, except those to a folder that contains them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from shardwright.core import storage
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.schemas.errors import EngineError
from shardwright.schemas.image_ref import printable


def walk(folder: str) -> Iterator[tuple[str, storage.StoredObject]]:
    """Yields (path relative to the folder, state) of everything except directories, depth first.

    A size of -1 means no regular file: a broken link, a pipe, or a link to a folder that contains it.

    Raises:
      EngineError: If a folder cannot be listed.
    """
    root = os.fsencode(folder)
    above = [_identity(bytes(parent)) for parent in Path(folder).resolve().parents]
    above.append(_identity(root))
    open_folders = [(iter(_scan(root)), b"")]
    while open_folders:
        entries, relative = open_folders[-1]
        for entry in entries:
            name = relative + entry.name
            if not _leads_down(entry, above):
                yield os.fsdecode(name), _state_of(entry)
                continue
            open_folders.append((iter(_scan(entry.path)), name + b"/"))
            above.append(_identity(entry.path))
            break
        else:
            open_folders.pop()
            above.pop()


def _scan(folder: bytes) -> list[os.DirEntry[bytes]]:
    UNDERWAY.progress()
    try:
        with os.scandir(folder) as entries:
            return sorted(UNDERWAY.passing(entries), key=lambda entry: entry.name)
    except OSError as error:
        raise _unlistable(folder, error) from error


def _identity(folder: bytes) -> tuple[int, int]:
    try:
        status = os.stat(folder)
    except OSError as error:
        raise _unlistable(folder, error) from error
    return status.st_dev, status.st_ino


def _unlistable(folder: bytes, error: OSError) -> EngineError:
    if error.errno in (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENAMETOOLONG):
        return EngineError(
            f"Cannot list {printable(os.fsdecode(folder))}: {(error.strerror or str(error)).lower()}; "
            "make it readable or move it out of the input."
        )
    return storage.fault(error, "list", os.fsdecode(folder))


def _state_of(entry: os.DirEntry[bytes]) -> storage.StoredObject:
    path = os.fsdecode(entry.path)
    try:
        status = entry.stat()
    except OSError:  # a broken link, or deleted since the folder was listed
        return storage.StoredObject(path, -1, "")
    if not stat.S_ISREG(status.st_mode):
        return storage.StoredObject(path, -1, "")
    return storage.StoredObject(path, status.st_size, storage.local_version(status))


def _leads_down(entry: os.DirEntry[bytes], above: Sequence[tuple[int, int]]) -> bool:
    """Returns whether an entry is a directory, or a link to one, that does not contain the entry.

    Args:
      entry: The entry; a broken link is no directory.
      above: Identities of the folders that contain it.
    """
    try:
        return entry.is_dir() and _identity(entry.path) not in above
    except OSError:
        return False
