"""Lets another process end this one with an exit code while C code holds Python's lock.

Without the lock no Python code runs, so no handler of a signal can choose the exit code. A thread of the C
library can: it waits for a byte in a pipe, and then calls `_exit` itself.

Source: aio(7) and sigevent(7), SIGEV_THREAD; the layout of `struct aiocb` is glibc's on 64-bit Linux.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

_SIGEV_THREAD = 2


class _Notification(ctypes.Structure):
    """The C type `struct sigevent` (64 bytes)."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("padding", ctypes.c_char * 32),
    )


class _Request(ctypes.Structure):
    """The C type `struct aiocb` (168 bytes), with spare room at the end."""

    _fields_ = (
        ("descriptor", ctypes.c_int),
        ("operation", ctypes.c_int),
        ("priority", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("notification", _Notification),
        ("private", ctypes.c_char * 128),
    )


#: Exit code -> the pipe that ends this process with it. They are never closed: that would count as a byte.
_PIPES: dict[int, int] = {}
#: Objects that the C library's threads use, kept alive here.
_KEPT: list[Any] = []
_OWNER = [0]


def exit_pipe(code: int) -> int:
    """Returns the pipe that ends this process as soon as somebody writes a byte to it.

    Args:
      code: The exit code.

    Returns:
      A file descriptor that child programs do not inherit; 0 if the system does not support this.
    """
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return 0
    if _OWNER[0] != os.getpid():  # a fork inherits the pipes of its parent, but not its threads
        _PIPES.clear()
        _OWNER[0] = os.getpid()
    if code not in _PIPES:
        _PIPES[code] = _new_pipe(code)
    return _PIPES[code]


def _new_pipe(code: int) -> int:
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version") or not hasattr(library, "aio_read"):
        return 0
    read_end, write_end = os.pipe()
    buffer = ctypes.create_string_buffer(1)
    request = _Request(descriptor=read_end, buffer=ctypes.addressof(buffer), size=1)
    request.notification = _Notification(
        value=code, notify=_SIGEV_THREAD, function=ctypes.cast(library._exit, ctypes.c_void_p).value
    )
    if library.aio_read(ctypes.byref(request)):
        os.close(read_end)
        os.close(write_end)
        return 0
    _KEPT.extend((buffer, request))
    return write_end
