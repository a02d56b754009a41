"""Keeps a command running when its output is closed or no longer read, as in a pipe to `head`."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Any

from shardwright.pipelines import log

#: Errors of an output that is no longer read: a closed pipe, terminal or descriptor.
_UNREAD = (errno.EPIPE, errno.EIO, errno.EBADF)
_STANDARD_DESCRIPTORS = (0, 1, 2)


class _Forgiving:
    """A stream that drops text that cannot be written, instead of raising.

    So a closed output does not change the exit code.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._dropping = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def buffer(self) -> _Forgiving:
        """The underlying stream of bytes."""
        return _Forgiving(self._stream.buffer)

    def isatty(self) -> bool:
        """Returns whether the stream is a terminal; false if it is closed."""
        try:
            return bool(self._stream.isatty())
        except (OSError, ValueError):
            return False

    def write(self, data: Any) -> int:
        """Writes data, or drops it if nobody reads it."""
        if not self._dropping:
            try:
                self._stream.write(data)
            except (OSError, ValueError) as error:
                self._drop(error)
        return len(data)

    def writelines(self, lines: Any) -> None:
        """Writes lines, or drops them if nobody reads them."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Writes buffered data, or drops it if nobody reads it."""
        if not self._dropping:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._drop(error)

    def _drop(self, error: OSError | ValueError) -> None:
        """Drops buffered data and everything written from now on.

        Raises:
          ValueError: The stream is open, so the error has another cause.
        """
        if isinstance(error, ValueError) and not isinstance(error, OSError) and not self._stream.closed:
            raise error
        self._dropping = True
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            try:
                os.dup2(nowhere, self._stream.fileno())
            finally:
                os.close(nowhere)
        if isinstance(error, OSError) and error.errno not in _UNREAD and sys.stderr is not self:
            reason = (error.strerror or str(error)).lower()
            log.info(f"the rest is not shown: {reason}.")


def fill_closed_descriptors() -> None:
    """Opens /dev/null for standard input, output and error where they are closed.

    Otherwise the next opened file would get such a number, and the output of libraries or child processes
    would be written into it.
    """
    for number in _STANDARD_DESCRIPTORS:
        try:
            os.fstat(number)
        except OSError:
            with contextlib.suppress(OSError):
                os.open(os.devnull, os.O_RDWR)  # gets the lowest free number


@contextlib.contextmanager
def forgiving_streams() -> Iterator[None]:
    """Replaces stdout and stderr by forgiving streams while the block runs, and flushes them at its end."""
    fill_closed_descriptors()
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
