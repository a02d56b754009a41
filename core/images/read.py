"""Reads the bytes of an image and checks that they are the ones that were listed."""

from __future__ import annotations

import errno
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from shardwright.core import storage
from shardwright.core.concurrency import thread_pool
from shardwright.core.images.byte_ranges import read_part, read_part_head
from shardwright.core.images.faults import unread
from shardwright.core.storage.local import LocalStore
from shardwright.schemas.byte_range import decode_place
from shardwright.schemas.codes import QuarantineReason
from shardwright.schemas.errors import ImageFault
from shardwright.schemas.image_ref import ImageRef
from shardwright.schemas.units import format_size

Result = TypeVar("Result")

#: Errors of a single file; any other OSError is a fault of the storage or the machine.
_FAULTS_OF_ONE_FILE = frozenset(
    (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP,
     errno.ENAMETOOLONG, errno.ENXIO, errno.ENODEV)
)  # fmt: skip
#: Seconds to wait before each new attempt to read; after the last one the job stops.
RETRY_AFTER = (0.1, 0.5, 2.0)
#: Number of attempts to read an object whose bytes do not match the listing.
_READS = 3
#: Number of bytes reserved for an image of unknown size.
_UNKNOWN_SIZE = 10**6
_GZIP = b"\x1f\x8b\x08"


def read_image(ref: ImageRef, max_bytes: int) -> bytes:
    """Returns the bytes of an image.

    Raises:
      ImageFault: If the file is too large, missing or forbidden.
      EngineError: If the file changed since it was listed, or the storage keeps failing.
    """
    if ref.size > max_bytes:
        raise _too_large(max_bytes, ref.size)
    for pause in (*RETRY_AFTER, None):
        try:
            if ref.place:
                return read_part(ref.uri, decode_place(ref.place), ref.size, max_bytes)
            return _read_remote(ref, max_bytes) if storage.is_remote(ref.uri) else _read_local(ref, max_bytes)
        except OSError as error:
            if error.errno in _FAULTS_OF_ONE_FILE and not (ref.place and error.errno == errno.ENOENT):
                words = (error.strerror or str(error)).lower()
                raise unread(QuarantineReason.UNREADABLE, words) from error
            if pause is None or error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise storage.fault(error, "read", ref.uri) from error
            time.sleep(pause)
    raise AssertionError


def expected_bytes(ref: ImageRef) -> int:
    """Returns the number of bytes to reserve for the source of an image."""
    return ref.size if ref.size >= 0 else _UNKNOWN_SIZE


def map_refs(
    function: Callable[[ImageRef], Result],
    refs: Sequence[ImageRef],
    max_weight: int = thread_pool.IN_FLIGHT_BYTES,
) -> Iterator[Result]:
    """Maps references in parallel with a function that reads their images, and keeps the order.

    The function must not decode them: it runs in threads of this process, one for each connection.

    Args:
      function: Function that calls `read_image` for most references.
      refs: The references.
      max_weight: Number of bytes of images that may be in flight.
    """
    return thread_pool.ordered_map(
        thread_pool.each(function),
        refs,
        thread_pool.reading_executor(),
        weigh=expected_bytes,
        max_items=thread_pool.READS_AHEAD,
        max_weight=max_weight,
        chunk_items=thread_pool.READS_AHEAD // thread_pool.CONNECTIONS,  # so that each connection has one
    )


def read_head(ref: ImageRef, count: int) -> bytes:
    """Returns the first bytes of an image, or all if it has fewer.

    Raises:
      ImageFault: If they cannot be unpacked.
      OSError: If they cannot be read.
    """
    if ref.place:
        return read_part_head(ref.uri, decode_place(ref.place), count)
    return storage.read_head(ref.uri, count)


def check_sha256(ref: ImageRef, digest: str) -> None:
    """Compares the sha256 of an image's bytes with the one that its source states, if any.

    Raises:
      ImageFault: If they differ.
    """
    if ref.sha256 and ref.sha256.lower() != digest:
        raise unread(
            QuarantineReason.CHECKSUM_MISMATCH,
            f"its sha256 begins with {digest[:12]}, but the source says {ref.sha256[:12]}",
        )


def _read_remote(ref: ImageRef, max_bytes: int) -> bytes:
    """Reads an object in one request, and again if its bytes do not match the listing."""
    if not ref.crc32c and not ref.version:  # named by a manifest, never listed
        return _unpack(_read_object(ref, max_bytes), max_bytes)
    checksum = ""
    for _ in range(_READS):
        try:
            data = _read_object(ref, max_bytes)
        except FileNotFoundError:
            _check_unchanged(ref)
            raise
        checksum = storage.crc32c_of(data) if ref.crc32c else ""
        if (ref.size < 0 or len(data) == ref.size) and checksum == ref.crc32c:
            return _unpack(data, max_bytes)
    _check_unchanged(ref)
    raise unread(
        QuarantineReason.CHECKSUM_MISMATCH,
        f"{len(data)} bytes arrived, crc32c {checksum or 'unknown'}; "
        f"{ref.size} were listed, with crc32c {ref.crc32c or 'unknown'}",
    )


def _read_object(ref: ImageRef, max_bytes: int) -> bytes:
    """Reads an object once; one without a listed version, whose size may be anything, up to the limit."""
    if ref.version:
        return storage.read_bytes(ref.uri, ref.version)
    try:
        return storage.read_bytes(ref.uri, limit=max_bytes)
    except storage.ObjectTooLarge as error:
        raise _too_large(max_bytes, error.size) from error


def _check_unchanged(ref: ImageRef) -> None:
    """Checks that an object is still the one that was listed."""
    now = storage.stat(ref.uri)
    if now is not None and ref.version and (now.version, now.size) != (ref.version, ref.size):
        raise storage.changed(ref.uri)


def _unpack(data: bytes, max_bytes: int) -> bytes:
    """Unpacks an object that was uploaded with `Content-Encoding: gzip`; no image begins like gzip."""
    if not data.startswith(_GZIP):
        return data
    try:
        unpacked = zlib.decompressobj(wbits=31).decompress(data, max_bytes + 1)
    except zlib.error:
        return data
    if len(unpacked) > max_bytes:
        raise _too_large(max_bytes, when=" when unpacked")
    return unpacked


def _read_local(ref: ImageRef, max_bytes: int) -> bytes:
    disk, size = LocalStore(), ref.size
    if size < 0:  # a manifest does not know the sizes of its files
        size = disk.stat(ref.uri).size
        if size > max_bytes:
            raise _too_large(max_bytes, size)
    return disk.read_range(ref.uri, 0, size, size, ref.version)


def _too_large(max_bytes: int, size: int = -1, when: str = "") -> ImageFault:
    """Returns the fault of a file that is larger than the user accepts; its size may be unknown."""
    most = format_size(max_bytes)
    what = f"{format_size(size)} are more than {most}" if size >= 0 else f"it has more than {most}{when}"
    return unread(QuarantineReason.TOO_LARGE, f"{what}; raise --max_bytes to accept it")
