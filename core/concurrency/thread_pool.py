"""A bounded thread pool that keeps the order, and a budget of bytes in flight."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from functools import lru_cache
from itertools import islice
from typing import TypeVar

from shardwright.core.concurrency.resources import return_large_blocks, usable_memory, worker_processes
from shardwright.core.concurrency.underway import UNDERWAY

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Number of small items that are passed to a thread together.
CHUNK_ITEMS = 16
#: Number of items of a stream that are read together.
_STREAM_CHUNK = 1000
#: Number of connections, and so of requests in flight, of a process.
CONNECTIONS = 64
#: Number of remote objects that are being read or wait for the decoder.
READS_AHEAD = 4 * CONNECTIONS
#: Bytes of decoded pictures that the threads of a process may hold together, if memory suffices.
WORKING_BYTES = 256 * 10**6
#: All worker processes together: one over this of the machine's memory. The least for a process is enough for
#: pictures of 12 megapixels.
_MEMORY_SHARE, _MIN_WORKING_BYTES = 8, 64 * 10**6
_LARGE_PICTURE = "shardwright-large-picture.lock"
#: Bytes of items and results in flight in a worker.
IN_FLIGHT_BYTES = 64 * 10**6


@lru_cache(1)
def reading_executor() -> ThreadPoolExecutor:
    """Returns the threads of this process that wait for a network, one for each connection."""
    return ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="shardwright-read")


os.register_at_fork(after_in_child=reading_executor.cache_clear)  # a child has no threads of its parent


class ByteBudget:
    """Limits the bytes that threads hold at once. A request above the limit waits until it is alone.

    Args:
      limit: Number of bytes.
      lock_file: File that the processes of a machine share, so that a request above the limit is alone among
        them too; empty for a single process.
    """

    def __init__(self, limit: int, lock_file: str = "") -> None:
        self.limit, self.lock_file = limit, lock_file
        self._used = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Waits until `size` bytes are free, and holds them while a block runs."""
        held = min(size, self.limit)
        with self._changed:
            if self._used + held > self.limit:
                with UNDERWAY.waiting():
                    self._changed.wait_for(lambda: self._used + held <= self.limit)
            self._used += held
        try:
            with contextlib.ExitStack() as alone:
                if size > self.limit and self.lock_file:
                    with UNDERWAY.waiting():
                        alone.enter_context(_locked(self.lock_file))
                yield
        finally:
            with self._changed:
                self._used -= held
                self._changed.notify_all()


@lru_cache(1)
def working_budget() -> ByteBudget:
    """Returns the budget for decoded pictures of this process.

    All worker processes of a machine together hold a share of its memory, and one larger picture.
    """
    return_large_blocks()
    processes = worker_processes()
    share = usable_memory() // _MEMORY_SHARE // processes
    lock_file = os.path.join(tempfile.gettempdir(), _LARGE_PICTURE) if processes > 1 else ""
    return ByteBudget(min(WORKING_BYTES, max(share, _MIN_WORKING_BYTES)), lock_file)


def reserve_working_bytes(size: int) -> AbstractContextManager[None]:
    """Returns a block that holds bytes of this process's budget."""
    return working_budget().reserve(size)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Holds a lock that one process can have at a time; the system releases it if the process dies."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:  # another user's file, or no space: continue without a lock
        yield
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def ordered_map(
    function: Callable[[list[Item]], list[Result]],
    items: Iterable[Item],
    executor: ThreadPoolExecutor,
    *,
    weigh: Callable[[Item], int],
    max_items: int,
    max_weight: int = IN_FLIGHT_BYTES,
    chunk_items: int = CHUNK_ITEMS,
) -> Generator[Result, None, None]:
    """Maps items in parallel, and yields the results in the order of the items.

    At most about `max_items` items with a total of `max_weight` are in work or wait to be consumed. A single
    heavier item runs alone. A chunk has at most `chunk_items` items with a total of a 64th of `max_weight`,
    or one heavier item. The first exception of `function` is raised at the position of its chunk. Items that
    have not started by then, or when the iterator is closed, are dropped.

    Small items are passed in chunks, because a future costs as much as a small task. Tasks that wait for a
    network are best passed singly.

    Args:
      function: Function of a chunk that returns a result for each item; `each` makes one.
      items: The items.
      executor: The threads.
      weigh: Function that returns the weight of an item.
      max_items: As above.
      max_weight: As above.
      chunk_items: As above.
    """
    waiting: deque[tuple[Future[list[Result]], int, int]] = deque()
    count = total = 0
    try:
        for chunk, weight in _chunks(items, weigh, chunk_items, max_weight // 64):
            while waiting and (count + len(chunk) > max_items or total + weight > max_weight):
                future, consumed, freed = waiting.popleft()
                yield from future.result()
                count, total = count - consumed, total - freed
            waiting.append((executor.submit(function, chunk), len(chunk), weight))
            count, total = count + len(chunk), total + weight
        while waiting:
            yield from waiting.popleft()[0].result()
    finally:
        for future, _, _ in waiting:
            future.cancel()


def each(function: Callable[[Item], Result]) -> Callable[[list[Item]], list[Result]]:
    """Returns a function of a chunk that calls a function for each of its items."""
    return lambda chunk: [function(item) for item in chunk]


def _chunks(
    items: Iterable[Item], weigh: Callable[[Item], int], max_items: int, max_weight: int
) -> Iterator[tuple[list[Item], int]]:
    """Yields items in lists of at most `max_items` and `max_weight`, or single heavier ones."""
    chunk: list[Item] = []
    weight = 0
    for item in items:
        cost = weigh(item)
        if chunk and (len(chunk) >= max_items or weight + cost > max_weight):
            yield chunk, weight
            chunk, weight = [], 0
        chunk.append(item)
        weight += cost
    if chunk:
        yield chunk, weight


def merge_streams(streams: Iterable[Iterable[Item]], threads: int) -> Iterator[Item]:
    """Yields the items of all streams as they arrive; the threads read as many streams at once.

    The first exception of a stream is raised here, and ends the other streams.
    """
    unread = map(iter, streams)
    reads: dict[Future[list[Item]], Iterator[Item]] = {}
    with ThreadPoolExecutor(threads) as executor:

        def read(stream: Iterator[Item]) -> None:
            reads[executor.submit(list, islice(stream, _STREAM_CHUNK))] = stream

        for stream in islice(unread, threads):
            read(stream)
        while reads:
            for future in wait(reads, return_when=FIRST_COMPLETED).done:
                stream = reads.pop(future)
                items = future.result()
                following = stream if items else next(unread, None)
                if following is not None:
                    read(following)
                yield from items
