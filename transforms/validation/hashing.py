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
import numpy as np

from shardwright.transforms.concurrency.workers import usable_cpus, worker_processes

#: Number of bytes that are read together at the end.
_READ_BYTES = 1 << 20
#: Fewer bytes are hashed at once, unless others wait.
_SMALL = 1 << 16


@lru_cache(1)
def _executor() -> ThreadPoolExecutor:
    """Returns the hashing thread of this process; it releases the interpreter lock while it hashes."""
    return ThreadPoolExecutor(1, thread_name_prefix="shardwright-hash")


def leaves_idle_processor() -> bool:
    """Returns whether the workers on this machine leave a processor idle, on which a thread can hash files.

    Without one, the thread is a loss: each block moves to the cache of another processor and back.
    """
    return worker_processes() < usable_cpus()


class _Checksums:
    """The sha256 and the crc32c of the same bytes."""

    def __init__(self) -> None:
        self.sha256, self.crc32c = hashlib.sha256(), 0

    def update(self, data: memoryview) -> None:
        """Adds more bytes."""
        self.sha256.update(data)
        # The CRC takes an array without a copy, and no memoryview.
        self.crc32c = google_crc32c.extend(self.crc32c, np.asarray(data))


class HashedFile:
    """A file that is hashed from beginning to end as its reader proceeds.

    At the end it reads the parts that the reader skipped. Parts that are read again are hashed once.

    Args:
      file: File opened for reading in binary mode.
      aside: Whether another thread hashes, to use a processor that the reader leaves idle. Then a buffer that
        `readinto` filled must not change before another one is filled.
    """

    def __init__(self, file: IO[bytes], aside: bool = True) -> None:
        self._file: Any = file
        self._aside = aside
        #: Number of buffers that a reader has to use in turn (`readinto`).
        self.buffers = 2 if aside else 1
        self._digest = _Checksums()
        self._position = self._hashed = 0
        self._waiting: deque[Future[None]] = deque()
        #: Whether the other thread was given the part that was read last.
        self._is_handed_over = False
        file.seek(0)

    def read(self, size: int = -1) -> bytes:
        """Reads the next bytes."""
        data: bytes = self._file.read(size)
        self._hash(memoryview(data))
        return data

    def readinto(self, buffer: memoryview) -> int:
        """Reads the next bytes into a buffer, and returns their number."""
        self._wait(int(self._is_handed_over))  # so all buffers but the one that was filled last are free
        self._is_handed_over = False
        size: int = self._file.readinto(buffer)
        self._hash(buffer[:size])
        return size

    def _hash(self, data: memoryview) -> None:
        """Hashes those of the bytes that were just read that are the next to hash, and moves the position."""
        begin, end = self._position, self._position + len(data)
        self._position = end
        if not begin <= self._hashed < end:
            return
        data, self._hashed = data[self._hashed - begin :], end
        if not self._aside or (len(data) < _SMALL and not self._waiting):
            self._digest.update(data)
            return
        self._wait(1)
        self._waiting.append(_executor().submit(self._digest.update, data))
        self._is_handed_over = True

    def _wait(self, left: int) -> None:
        """Waits until at most some parts have not been hashed."""
        while len(self._waiting) > left:
            self._waiting.popleft().result()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves the position."""
        position: int = self._file.seek(offset, whence)
        self._position = position
        return position

    def tell(self) -> int:
        """Returns the position."""
        return self._position

    def fileno(self) -> int:
        """Returns the file descriptor."""
        number: int = self._file.fileno()
        return number

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def checksums(self) -> tuple[str, str]:
        """Returns the sha256 (hex) and the crc32c (as storages write it) of the whole file."""
        self.seek(self._hashed)
        while self.read(_READ_BYTES):
            pass
        self._wait(0)
        crc = base64.b64encode(self._digest.crc32c.to_bytes(4, "big")).decode()
        return self._digest.sha256.hexdigest(), crc
