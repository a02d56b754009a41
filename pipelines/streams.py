"""Keeps a command going when whoever reads its output stops reading, as `head` does."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any


class _Forgiving:
    """A stream that drops what nobody reads any more, instead of raising BrokenPipeError.

    The exit code then still says what the command found.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def buffer(self) -> _Forgiving:
        """The stream of bytes below."""
        return _Forgiving(self._stream.buffer)

    def write(self, data: Any) -> int:
        """Writes, or drops what nobody reads."""
        try:
            self._stream.write(data)
        except BrokenPipeError:
            self._drop()
        return len(data)

    def writelines(self, lines: Any) -> None:
        """Writes lines, or drops those that nobody reads."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Writes what is buffered, or drops what nobody reads."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        """Lets all that is written from now on, and what is still buffered, go nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, self._stream.fileno())
        finally:
            os.close(nowhere)


@contextlib.contextmanager
def forgiving_streams() -> Iterator[None]:
    """Makes stdout and stderr forgiving while the block runs, and flushes them at its end."""
    before = sys.stdout, sys.stderr
    ours = [_Forgiving(stream) if stream is not None else None for stream in before]
    sys.stdout, sys.stderr = ours
    try:
        yield
    finally:
        for stream in ours:
            if stream is not None:
                with contextlib.suppress(ValueError):  # it is closed
                    stream.flush()
        sys.stdout, sys.stderr = before
