"""Keeps a command running when its output is closed or no longer read, as in a pipe to `head`."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from shardwright.pipelines import log

#: Errors of an output that is no longer read: a closed pipe, terminal or descriptor.
_UNREAD = (errno.EPIPE, errno.EIO, errno.EBADF)


class _Forgiving:
    """A stream that drops text that cannot be written, so that a closed output changes no exit code."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def buffer(self) -> _Forgiving:
        """The underlying stream of bytes."""
        return _Forgiving(self._stream.buffer)

    def write(self, data: Any) -> int:
        """Writes data, or drops it if it cannot be written."""
        try:
            self._stream.write(data)
        except OSError as error:
            self._drop(error)
        return len(data)

    def writelines(self, lines: Iterable[Any]) -> None:
        """Writes lines, or drops those that cannot be written."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Writes buffered data, or drops it if it cannot be written."""
        try:
            self._stream.flush()
        except OSError as error:
            self._drop(error)

    def _drop(self, error: OSError) -> None:
        """Lets the descriptor lead nowhere, also for what is still buffered and for child processes."""
        with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), self._stream.fileno())
        if error.errno not in _UNREAD and sys.stderr is not self:
            log.info(f"the rest is not shown: {(error.strerror or str(error)).lower()}.")


def _fill_closed_descriptors() -> None:
    """Opens /dev/null for standard input, output and error where they are closed.

    Otherwise the next opened file would get such a number, and the output of libraries or child processes
    would be written into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number


@contextlib.contextmanager
def forgiving_streams() -> Iterator[None]:
    """Replaces stdout and stderr by forgiving streams while the block runs, and flushes them at its end."""
    _fill_closed_descriptors()
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        # Python has no stream for a descriptor that was closed when Python started.
        ours = [_Forgiving(nowhere if stream is None else stream) for stream in before]
        sys.stdout, sys.stderr = ours
        try:
            yield
        finally:
            for stream in ours:
                stream.flush()
            sys.stdout, sys.stderr = before
