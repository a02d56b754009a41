"""Reads ranges of a file in its listed version, with few requests."""

from __future__ import annotations

import os
from types import TracebackType

from shardwright.transforms import storage
from shardwright.transforms.concurrency.underway import UNDERWAY
from shardwright.transforms.storage.faults import changed
from shardwright.transforms.storage.local import local_version, read_fully
from shardwright.transforms.storage.random_access import RandomAccessFile

#: Number of bytes that are read at once from a local disk, where a request costs almost nothing.
_LOCAL_STEP = 1 << 12
#: The same for a network: after a jump, and during sequential reads.
_REMOTE_STEP, _REMOTE_MAX = 1 << 16, 8 << 20
#: Number of bytes that a network transfers in about the time of one more request.
_WORTH_READING = 2 << 20


class RangeReader:
    """Random access to a file, through one buffer.

    Args:
      path: path of the file, local or remote.
      size: size of the file when it was listed.
      version: version of the file when it was listed; empty if unknown.
    """

    def __init__(self, path: str, size: int, version: str = "") -> None:
        self.path, self.size, self.version = path, size, version
        self._remote = storage.is_remote(path)
        self._step = _REMOTE_STEP if self._remote else _LOCAL_STEP
        self._buffer, self._begin = b"", 0
        self._descriptor = -1
        if not self._remote:
            self._descriptor = os.open(path, os.O_RDONLY)
            try:
                self.check_unchanged()
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> RangeReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def check_unchanged(self) -> None:
        """Checks that a local file has not changed since it was listed; remote reads request the version.

        Raises:
          EngineError: if it is not.
        """
        if self._descriptor < 0:
            return
        status = os.fstat(self._descriptor)
        if status.st_size != self.size or (self.version and local_version(status) != self.version):
            raise changed(self.path)

    def read_at(self, offset: int, length: int) -> bytes:
        """Reads a range; the result is shorter at the end of the file.

        Raises:
          EngineError: if the file is not as it was listed.
          OSError: if it cannot be read.
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
        wanted = min(max(length, self._step), self.size - offset)
        if self._descriptor >= 0:
            self._buffer = read_fully(self._descriptor, offset, wanted)
        else:
            self._buffer = storage.read_range(self.path, offset, wanted, self.size, self.version)
        self._begin = offset
        UNDERWAY.progress()
        if len(self._buffer) < length:
            raise changed(self.path)
        return self._buffer[:length]


def file_of(ranges: RangeReader) -> RandomAccessFile:
    """Returns a reader as a file object."""
    return RandomAccessFile(ranges.read_at, ranges.size)


def open_ranges(path: str) -> RangeReader:
    """Opens a file as it is now.

    Raises:
      FileNotFoundError: or another OSError.
    """
    found = storage.stat(path)
    if found is None:
        raise FileNotFoundError(2, "no such file", path)
    return RangeReader(path, found.size, found.version)
