"""Hashes a file while it is read, so that it is read only once."""

from __future__ import annotations

import base64
import hashlib
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import IO, Any

import google_crc32c

#: Number of bytes that are handed over together, and number of such parts that may wait to be hashed.
_READ_BYTES = 1 << 20
_MAX_WAITING = 4


@lru_cache(1)
def _executor() -> ThreadPoolExecutor:
    """Returns the hashing thread of this process; it releases the interpreter lock while it hashes."""
    return ThreadPoolExecutor(1, thread_name_prefix="shardwright-hash")


def _update(digest: Any, parts: list[bytes]) -> None:
    for part in parts:
        digest.update(part)


class _Checksums:
    """The sha256 and the crc32c of the same bytes."""

    def __init__(self) -> None:
        self.sha256, self.crc32c = hashlib.sha256(), google_crc32c.Checksum()

    def update(self, data: bytes) -> None:
        """Adds more bytes."""
        self.sha256.update(data)
        self.crc32c.update(data)


class HashedFile:
    """A file that is hashed from beginning to end as its reader proceeds.

    At the end it reads the parts that the reader skipped. Parts that are read again are hashed once.

    Args:
      file: File opened for reading in binary mode.
      aside: Whether another thread hashes, to use a processor that the reader leaves idle.
    """

    def __init__(self, file: IO[bytes], aside: bool = True) -> None:
        self._file = file
        self._aside = aside
        self._parts: list[bytes] = []
        self._unsent = 0
        self._digest = _Checksums()
        self._position = self._hashed = 0
        self._waiting: deque[Future[None]] = deque()
        file.seek(0)

    def read(self, size: int = -1) -> bytes:
        """Reads the next bytes."""
        data = self._file.read(size)
        begin, end = self._position, self._position + len(data)
        if begin <= self._hashed < end:
            self._hash(data if begin == self._hashed else data[self._hashed - begin :])
        self._position = end
        return data

    def _hash(self, data: bytes) -> None:
        self._hashed += len(data)
        if not self._aside:
            self._digest.update(data)
            return
        self._parts.append(data)
        self._unsent += len(data)
        if self._unsent >= _READ_BYTES:
            self._send()

    def _send(self) -> None:
        """Hands the bytes that were read over to the other thread."""
        while len(self._waiting) >= _MAX_WAITING:
            self._waiting.popleft().result()
        self._waiting.append(_executor().submit(_update, self._digest, self._parts))
        self._parts, self._unsent = [], 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves the position."""
        self._position = self._file.seek(offset, whence)
        return self._position

    def tell(self) -> int:
        """Returns the position."""
        return self._position

    def fileno(self) -> int:
        """Returns the file descriptor."""
        return self._file.fileno()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def checksums(self) -> tuple[str, str]:
        """Returns the sha256 (hex) and the crc32c (as storages write it) of the whole file."""
        self.seek(self._hashed)
        while self.read(_READ_BYTES):
            pass
        if self._parts:
            self._send()
        while self._waiting:
            self._waiting.popleft().result()
        crc = base64.b64encode(self._digest.crc32c.digest()).decode()
        return self._digest.sha256.hexdigest(), crc
