"""Reads annotation files of which there is one for each image: a few bytes, very many times."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from shardwright.transforms import storage
from shardwright.transforms.concurrency.underway import UNDERWAY

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST_BYTES = 16 << 20
#: Objects read at once, and how many are asked for together.
_REQUESTS_AT_ONCE = 32
_TOGETHER = 1024
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_OF_ONE_FILE = (errno.EACCES, errno.EPERM, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV)


class AnnotationFault(Exception):
    """An image's annotations cannot be used; the message says why."""


def read_annotation_file(path: str, most_bytes: int = MOST_BYTES) -> bytes | None:
    """Reads a file; None if there is none.

    Args:
      path: the file.
      most_bytes: the size from which it is too large.

    Raises:
      AnnotationFault: if it cannot be read or is too large.
      EngineError: if the storage failed.
    """
    try:
        with UNDERWAY.working_on(path, "read"):
            data = storage.read_head(path, most_bytes)
    except ValueError:  # a NUL
        return None
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        if error.errno in _OF_ONE_FILE:
            why = (error.strerror or str(error)).lower()
            raise AnnotationFault(f"its annotations cannot be read: {why}") from None
        raise storage.fault(error, "read", path) from error
    if len(data) >= most_bytes:
        raise AnnotationFault(f"its annotations are {most_bytes >> 20} MB or more")
    return data


def side_by_side(function: Callable[[Item], Result], items: Iterable[Item], path: str) -> Iterator[Result]:
    """Yields a function's results in order, many at once where it waits for a network.

    Args:
      function: reads something for an item.
      items: any number of them.
      path: where they lie.
    """
    if not storage.is_remote(path):
        yield from map(function, items)
        return
    waiting = iter(items)
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as executor:
        while batch := list(islice(waiting, _TOGETHER)):
            yield from executor.map(function, batch)
