"""Reads one image's bytes and proves that they are those that were listed."""

from __future__ import annotations

import errno
import os
import stat
import time

from shardwright.schemas.codes import QuarantineReason, Stage
from shardwright.schemas.errors import EngineError, ImageFault
from shardwright.schemas.image_ref import ImageRef, printable
from shardwright.schemas.units import format_size
from shardwright.transforms import storage

#: Faults of one file; any other OSError is one of the storage or the machine.
_FAULTS_OF_ONE_FILE = frozenset(
    (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP,
     errno.ENAMETOOLONG, errno.ENXIO, errno.ENODEV)
)  # fmt: skip
#: Seconds to wait before reading again what failed; then the job stops.
_RETRY_AFTER = (0.1, 0.5, 2.0)


def local_version(status: os.stat_result) -> str:
    """Returns the mark of a local file's state: its modification time in ns."""
    return str(status.st_mtime_ns)


def read_image(ref: ImageRef, max_bytes: int) -> bytes:
    """Returns an image's bytes.

    Raises:
      ImageFault: if the file is too large, or absent or forbidden.
      EngineError: if it changed since it was listed, or the storage keeps failing.
    """
    if ref.size > max_bytes:
        raise ImageFault(
            QuarantineReason.TOO_LARGE,
            Stage.READ,
            f"{format_size(ref.size)} are more than {format_size(max_bytes)}; raise --max_bytes to take it",
        )
    for pause in (*_RETRY_AFTER, None):
        try:
            return _read_remote(ref) if storage.is_remote(ref.uri) else _read_local(ref)
        except OSError as error:
            if error.errno in _FAULTS_OF_ONE_FILE:
                raise ImageFault(
                    QuarantineReason.UNREADABLE, Stage.READ, (error.strerror or str(error)).lower()
                ) from error
            if pause is None or error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise storage.fault(error, "read", ref.uri) from error
            time.sleep(pause)
    raise AssertionError


def _read_remote(ref: ImageRef) -> bytes:
    data = storage.read_bytes(ref.uri)
    if ref.size >= 0 and len(data) != ref.size:
        raise _changed(ref)
    return data


def _read_local(ref: ImageRef) -> bytes:
    descriptor = os.open(ref.uri, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ImageFault(QuarantineReason.UNREADABLE, Stage.READ, "it is no regular file")
        if ref.size >= 0 and (
            status.st_size != ref.size or (ref.version and local_version(status) != ref.version)
        ):
            raise _changed(ref)
        chunks = []
        left = status.st_size
        while left and (chunk := os.read(descriptor, left)):
            chunks.append(chunk)
            left -= len(chunk)
        if left:
            raise _changed(ref)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    finally:
        os.close(descriptor)


def _changed(ref: ImageRef) -> EngineError:
    return EngineError(
        f"{printable(ref.uri)} changed while the job was reading its input; "
        "run again with --resume when nothing writes there."
    )
