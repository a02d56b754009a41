"""Hashes a file while it is read, so that nothing is read twice."""

from __future__ import annotations

import base64
import hashlib
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import IO, Any

import google_crc32c

#: Bytes that are handed over together, and how often that may wait to be hashed.
_READ_BYTES = 1 << 20
_MAX_WAITING = 4


@lru_cache(1)
def _executor() -> ThreadPoolExecutor:
    """Returns the one thread of this process that hashes; it lets go of the interpreter meanwhile."""
    return ThreadPoolExecutor(1, thread_name_prefix="shardwright-hash")


def _update(digest: Any, parts: list[memoryview]) -> None:
    for part in parts:
        digest.update(part)


class _Checksums:
    """The sha256 and the crc32c of the same bytes."""

    def __init__(self) -> None:
        self.sha256, self.crc32c = hashlib.sha256(), google_crc32c.Checksum()

    def update(self, data: memoryview) -> None:
        """Goes on with more bytes."""
        self.sha256.update(data)
        self.crc32c.update(bytes(data))  # it takes no view


class HashedFile:
    """A file that is hashed from its beginning to its end as its reader comes along.

    What the reader leaves out is read in the end, what it reads again is hashed once.

    Args:
      file: opened for reading in binary mode.
      aside: whether another thread hashes, where the reader's leaves a processor idle.
    """

    def __init__(self, file: IO[bytes], aside: bool = True) -> None:
        self._file = file
        self._aside = aside
        self._parts: list[memoryview] = []
        self._unsent = 0
        self._digest = _Checksums()
        self._position = self._hashed = 0
        self._waiting: deque[Future[None]] = deque()
        file.seek(0)

    def read(self, size: int = -1) -> bytes:
        """Reads on."""
        data = self._file.read(size)
        begin, end = self._position, self._position + len(data)
        if begin <= self._hashed < end:
            self._hash(memoryview(data)[self._hashed - begin :])
        self._position = end
        return data

    def _hash(self, data: memoryview) -> None:
        self._hashed += len(data)
        if not self._aside:
            self._digest.update(data)
            return
        self._parts.append(data)
        self._unsent += len(data)
        if self._unsent >= _READ_BYTES:
            self._send()

    def _send(self) -> None:
        """Hands over what was read to the other thread."""
        while len(self._waiting) >= _MAX_WAITING:
            self._waiting.popleft().result()
        self._waiting.append(_executor().submit(_update, self._digest, self._parts))
        self._parts, self._unsent = [], 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves on or back."""
        self._position = self._file.seek(offset, whence)
        return self._position

    def tell(self) -> int:
        """Returns where the next byte is read."""
        return self._position

    def fileno(self) -> int:
        """Returns the number of the open file."""
        return self._file.fileno()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def checksums(self) -> tuple[str, str]:
        """Returns sha256 (hex) and crc32c (as storages write it) of all of the file."""
        self.seek(self._hashed)
        while self.read(_READ_BYTES):
            pass
        if self._parts:
            self._send()
        while self._waiting:
            self._waiting.popleft().result()
        crc = base64.b64encode(self._digest.crc32c.digest()).decode()
        return self._digest.sha256.hexdigest(), crc
