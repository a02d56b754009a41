"""Batches of images and classes. Threads read and decode them; the order does not depend on the threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np

from shardwright.schemas.errors import UsageError

#: Images and their classes. The classes are a list if an image can have any number of them.
Batch = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | list[Any]]
Task = Callable[[], tuple[Any, Any]]

#: Records that a thread takes together, because a future costs as much time as a small image.
_CHUNK = 8
#: Number of batches to prepare in advance.
_AHEAD = 2


def iterate_batches(
    tasks: Iterable[Task], batch_size: int, drop_remainder: bool, threads: int | None
) -> Iterator[Batch]:
    """Yields batches of the results of tasks, in the order of the tasks. A result is an image and its class.

    Args:
      tasks: The tasks, which threads run.
      batch_size: Number of results in a batch.
      drop_remainder: Whether to drop the last batch if it is smaller.
      threads: Number of threads. None means one more than there are processors.

    Raises:
      UsageError: If the images of a batch differ in size or type.
    """
    if threads is None:
        threads = (os.cpu_count() or 1) + 1
    executor = ThreadPoolExecutor(threads, thread_name_prefix="shardwright-batches")
    waiting: deque[Future[list[tuple[Any, Any]]]] = deque()
    ready: list[tuple[Any, Any]] = []
    source = iter(tasks)
    most = max(-(-batch_size * _AHEAD // _CHUNK), threads + 1)
    try:
        while True:
            while len(waiting) < most and (chunk := list(islice(source, _CHUNK))):
                waiting.append(executor.submit(_run, chunk))
            if not waiting:
                break
            ready += waiting.popleft().result()
            while len(ready) >= batch_size:
                yield _stacked(ready[:batch_size])
                del ready[:batch_size]
        if ready and not drop_remainder:
            yield _stacked(ready)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _run(chunk: list[Task]) -> list[tuple[Any, Any]]:
    return [task() for task in chunk]


def _stacked(pairs: list[tuple[Any, Any]]) -> Batch:
    pictures = [np.asarray(picture) for picture, _ in pairs]
    shapes = sorted({picture.shape for picture in pictures})
    if len(shapes) > 1:
        raise UsageError(
            f"The images of a batch have {len(shapes)} shapes, such as {shapes[0]} and {shapes[-1]}; give "
            "them one shape with transform, or convert with --resize and --color rgb."
        )
    types = sorted({picture.dtype.name for picture in pictures})
    if len(types) > 1:  # NumPy would widen integers without scaling them
        raise UsageError(
            f"The images of a batch are {' and '.join(types)}; open the records with one type, such as "
            "Records(..., dtype='float32')."
        )
    labels = [label for _, label in pairs]
    several = any(isinstance(label, np.ndarray) for label in labels)
    return np.stack(pictures), labels if several else np.array(labels, np.int64)
