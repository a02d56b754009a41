"""Reads ranges of a file in its listed version, with few requests."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from shardwright.core import storage

#: Number of bytes that are read at once from a local disk, where a request costs almost nothing.
_LOCAL_STEP = 1 << 12
#: Number of bytes that are read at once from a network: after a jump, and during sequential reads.
_REMOTE_STEP, _REMOTE_MAX = 1 << 16, 8 << 20
#: Number of bytes that a network transfers in about the time of one more request.
_WORTH_READING = 2 << 20


class RandomAccessFile(io.RawIOBase):
    """A seekable file for libraries that read from file objects.

    Args:
      read_at: Returns the bytes at an offset, given their number; fewer only at the end of the file.
      size: Size of the file in bytes.
    """

    def __init__(self, read_at: Callable[[int, int], bytes | memoryview], size: int) -> None:
        super().__init__()
        self._read_at = read_at
        self.size = size
        self._position = 0

    def readable(self) -> bool:
        """Returns true."""
        return True

    def seekable(self) -> bool:
        """Returns true."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves to a position, at the earliest to the beginning; returns it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(start + offset, 0)
        return self._position

    def read(self, size: int = -1) -> Any:
        """Returns the next bytes; all that are left if `size` is negative."""
        data = bytes(self._read_at(self._position, self.size if size < 0 else size))
        self._position += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        """Reads the next bytes into a buffer; returns their number."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class RangeReader(RandomAccessFile):
    """Random access to a file, through one buffer.

    Args:
      path: Path of the file, local or remote.
      size: Size of the file when it was listed.
      version: Version of the file when it was listed; empty if unknown.
    """

    def __init__(self, path: str, size: int, version: str = "") -> None:
        super().__init__(self.read_at, size)
        self.path, self.version = path, version
        self._remote = storage.is_remote(path)
        self._step = _REMOTE_STEP if self._remote else _LOCAL_STEP
        self._buffer, self._begin = b"", 0

    def read_at(self, offset: int, length: int) -> bytes:
        """Reads a range; the result is shorter at the end of the file.

        Raises:
          EngineError: If the file is not as it was listed.
          OSError: If it cannot be read.
        """
        length = min(length, self.size - offset)
        if length <= 0 or offset < 0:
            return b""
        begin = offset - self._begin
        if begin >= 0 and begin + length <= len(self._buffer):
            return self._buffer[begin : begin + length]
        end = self._begin + len(self._buffer)
        if self._remote:
            # Steps grow while each begins where the last one ended, or not much further.
            near = self._begin <= offset <= end + max(self._step, _WORTH_READING)
            self._step = min(self._step * 2, _REMOTE_MAX) if near and self._buffer else _REMOTE_STEP
        count = min(max(length, self._step), self.size - offset)
        self._buffer = storage.read_range(self.path, offset, count, self.size, self.version)
        self._begin = offset
        if len(self._buffer) < length:
            raise storage.changed(self.path)
        return self._buffer[:length]


def open_ranges(path: str) -> RangeReader:
    """Opens a file as it is now.

    Raises:
      FileNotFoundError: Or another OSError.
    """
    state = storage.state_of(path)
    return RangeReader(path, state.size, state.version)
