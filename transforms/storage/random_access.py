"""`RandomAccessFile`: a file object over a function that reads ranges of bytes."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any


class RandomAccessFile(io.RawIOBase):
    """A seekable file for libraries that read from file objects.

    Args:
      read_at: Returns the bytes at an offset, given their number; fewer only at the end of the file.
      size: Size of the file in bytes.
    """

    def __init__(self, read_at: Callable[[int, int], bytes | memoryview], size: int) -> None:
        super().__init__()
        self._read_at = read_at
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """Returns true."""
        return True

    def seekable(self) -> bool:
        """Returns true."""
        return True

    def tell(self) -> int:
        """Returns the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves to a position, at the earliest to the beginning; returns it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(start + offset, 0)
        return self._position

    def read(self, size: int = -1) -> Any:
        """Returns the next bytes; all that are left if `size` is negative."""
        data = bytes(self._read_at(self._position, self._size if size < 0 else size))
        self._position += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Reads the next bytes into a buffer; returns their number."""
        data = self._read_at(self._position, len(buffer))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
