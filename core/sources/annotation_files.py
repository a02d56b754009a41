"""Reads annotation files in formats with one small file for each image."""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from shardwright.core import storage
from shardwright.core.concurrency.pool import OrderedMap, each, reading_executor
from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.schemas.plain_text import UTF16, is_utf16

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_BYTES = 16 << 20
#: Items that are being read or wait for the ones before them.
_READS_AHEAD = 1024
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
#: Errors of a single file; other errors affect the whole machine.
OF_ONE_FILE = (
    *_NOT_THERE, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV,
)  # fmt: skip


class AnnotationFault(Exception):
    """An image, or what is said about it, cannot be used; the message says why.

    Attributes:
      reason: Reason for the quarantine; empty for the usual one of the format.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


@contextlib.contextmanager
def faults_in(part: str) -> Iterator[None]:
    """Turns a ValueError about a part of a file, such as a line, into an AnnotationFault that names it."""
    try:
        yield
    except ValueError as error:
        raise AnnotationFault(f"{part}: {error}") from None


def read_annotation_file(path: str, max_bytes: int = MAX_BYTES) -> bytes | None:
    """Reads a file.

    Args:
      path: Path of the file.
      max_bytes: Size from which the file is too large.

    Returns:
      The content, or None if the file does not exist.

    Raises:
      AnnotationFault: If the file cannot be read, is too large or is UTF-16 text.
      EngineError: If the storage failed.
    """
    try:
        with UNDERWAY.working_on(path, "read"):
            data = storage.read_head(path, max_bytes)
    except ValueError:  # the path contains a NUL
        return None
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        if error.errno in OF_ONE_FILE:
            why = (error.strerror or str(error)).lower()
            raise AnnotationFault(f"its annotations cannot be read: {why}") from None
        raise storage.fault(error, "read", path) from error
    if is_utf16(data):
        raise AnnotationFault(f"its annotation file is {UTF16}")
    if len(data) >= max_bytes:
        raise AnnotationFault(f"its annotations are {max_bytes >> 20} MB or more")
    return data


def parse_json(data: bytes) -> Any:
    """Returns the value in a JSON file.

    Raises:
      AnnotationFault: If it is not JSON; the message names the line.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "it"
        raise AnnotationFault(f"{where} is not JSON") from None


def rows_of(data: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the cells of each line of a text that is not blank."""
    lines = data.decode("utf-8-sig", "replace").splitlines()
    return ((line, cells) for line, text in enumerate(lines, 1) if (cells := text.split()))


def read_list_file(path: str) -> bytes | None:
    """Reads a file that lists images, such as those of a split; returns None if it does not exist.

    Raises:
      UsageError: If the file cannot be used.
      EngineError: If the storage failed.
    """
    try:
        return read_annotation_file(path)
    except AnnotationFault as fault:
        raise UsageError(f"{printable(path)}: {fault}.") from None


def side_by_side(function: Callable[[Item], Result], items: Iterable[Item], path: str) -> Iterator[Result]:
    """Yields a function's results in order; calls it in parallel if the items are remote.

    Args:
      function: Function to call for each item.
      items: Items to process.
      path: Path that tells whether the items are remote.
    """
    if not storage.is_remote(path):
        return map(function, items)
    return iter(
        OrderedMap(
            each(function),
            items,
            reading_executor(),
            weigh=lambda _: 0,
            max_items=_READS_AHEAD,
            chunk_items=1,
        )
    )
