"""Keeps a command going when its output is closed, or when nobody reads it any more, as behind `head`."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Any

#: Errors that say that nobody reads the output any more: a pipe, a terminal or a descriptor that is closed.
_UNREAD = (errno.EPIPE, errno.EIO, errno.EBADF)
_STANDARD_DESCRIPTORS = (0, 1, 2)


class _Forgiving:
    """A stream that drops what cannot be written, instead of raising.

    The exit code then still says what the command did.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._dropping = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def buffer(self) -> _Forgiving:
        """The stream of bytes below."""
        return _Forgiving(self._stream.buffer)

    def isatty(self) -> bool:
        """Whether somebody looks at a terminal; not if the stream is closed."""
        try:
            return bool(self._stream.isatty())
        except (OSError, ValueError):
            return False

    def write(self, data: Any) -> int:
        """Writes, or drops what nobody reads."""
        if not self._dropping:
            try:
                self._stream.write(data)
            except (OSError, ValueError) as error:
                self._drop(error)
        return len(data)

    def writelines(self, lines: Any) -> None:
        """Writes lines, or drops those that nobody reads."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Writes what is buffered, or drops what nobody reads."""
        if not self._dropping:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._drop(error)

    def _drop(self, error: OSError | ValueError) -> None:
        """Lets all that is written from now on, and what is still buffered, go nowhere.

        Raises:
          ValueError: if the stream is open, so that the fault is not the stream's.
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
            said = (error.strerror or str(error)).lower()
            print(f"shardwright: the rest is not shown: {said}.", file=sys.stderr)


def fill_closed_descriptors() -> None:
    """Opens /dev/null for standard input, output and error where they are closed.

    The next file that is opened would get such a number, and whatever a library or a child process prints
    would be written into it.
    """
    for number in _STANDARD_DESCRIPTORS:
        try:
            os.fstat(number)
        except OSError:
            with contextlib.suppress(OSError):
                os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free


@contextlib.contextmanager
def forgiving_streams() -> Iterator[None]:
    """Makes stdout and stderr forgiving while the block runs, and flushes them at its end."""
    fill_closed_descriptors()
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        # Python has no stream for a descriptor that was closed when it started.
        ours = [_Forgiving(nowhere if stream is None else stream) for stream in before]
        sys.stdout, sys.stderr = ours
        try:
            yield
        finally:
            for stream in ours:
                stream.flush()
            sys.stdout, sys.stderr = before
