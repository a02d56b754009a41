"""Reads one version of an object, from storages that bind a request to an ETag."""

from __future__ import annotations

import contextlib
import errno
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO

from shardwright.transforms.storage.faults import changed
from shardwright.transforms.storage.stored_object import StoredObject

#: Number of attempts to read an object that is written between the request for its state and its reading.
_ATTEMPTS = 8


def read_latest(
    path: str, stat: Callable[[str], StoredObject | None], read: Callable[[str, str], bytes]
) -> tuple[bytes, str] | None:
    """Reads an object and its version; None if there is none.

    Args:
      path: path of the object.
      stat: function of a path that returns the metadata of the object, or None.
      read: function of a path and a version that returns the bytes.

    Raises:
      EngineError: if the object changes all the time.
    """
    for _ in range(_ATTEMPTS):
        found = stat(path)
        if found is None:
            return None
        with contextlib.suppress(FileNotFoundError):  # written in between
            return read(path, found.version), found.version
    raise changed(path)


@contextlib.contextmanager
def local_copy(
    path: str,
    stat: Callable[[str], StoredObject | None],
    chunks: Callable[[str, int], Iterable[bytes]],
    retried: Callable[[str, str, Callable[[], None], int], None],
) -> Iterator[IO[bytes]]:
    """Opens a local copy of an object; a transfer that breaks off continues in the same version.

    Args:
      path: path of the object.
      stat: function of a path that returns the metadata of the object, or None.
      chunks: function of a version and an offset in bytes that requests the rest of the object.
      retried: function that calls a function until it succeeds (the name of the operation, the path, the
        function, and the number of bytes).

    Raises:
      EngineError: if the object changes while it is read.
      FileNotFoundError: if there is none.
    """
    found = stat(path)
    if found is None:
        raise _missing(path)
    with tempfile.TemporaryFile() as file:

        def fetch() -> None:
            done = file.tell()
            if done < found.size or not done:
                for chunk in chunks(found.version, done):
                    file.write(chunk)

        try:
            retried("read", path, fetch, found.size)
        except FileNotFoundError:
            raise (_missing(path) if stat(path) is None else changed(path)) from None
        file.seek(0)
        yield file


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "no such object", path)
