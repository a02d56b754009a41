"""A bounded thread pool that keeps the order, and a budget of bytes in flight."""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Generic, TypeVar

from shardwright.core.concurrency.resources import (
    return_large_blocks,
    usable_memory,
    worker_processes,
)
from shardwright.core.concurrency.underway import UNDERWAY

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Number of small items that are passed to a thread together.
CHUNK_ITEMS = 16
#: Number of items of a stream that are handed over together.
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

    Attributes:
      used: Number of bytes that are held.
      changed: Condition that guards `used`.
    """

    def __init__(self, limit: int, lock_file: str = "") -> None:
        self.limit, self._lock_file = limit, lock_file
        self.used = 0
        self.changed = threading.Condition()

    def reserve(self, size: int) -> AbstractContextManager[None]:
        """Returns a context manager that waits until `size` bytes are free, and holds them for its block."""
        if size > self.limit and self._lock_file:
            return self._reserve_alone()
        return _Reservation(self, min(size, self.limit))

    @contextlib.contextmanager
    def _reserve_alone(self) -> Iterator[None]:
        """Holds all bytes of this process while no other process of the machine does the same."""
        with _Reservation(self, self.limit), contextlib.ExitStack() as alone:
            with UNDERWAY.waiting():
                alone.enter_context(_locked(self._lock_file))
            yield


class _Reservation:
    """A block that holds bytes of a budget. Every image enters one; a generator would take twice the time."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: ByteBudget, size: int) -> None:
        self._budget, self._size = budget, size

    def __enter__(self) -> None:
        budget, size = self._budget, self._size
        with budget.changed:
            if budget.used + size > budget.limit:
                with UNDERWAY.waiting():
                    budget.changed.wait_for(lambda: budget.used + size <= budget.limit)
            budget.used += size

    def __exit__(self, *raised: object) -> None:
        with self._budget.changed:
            self._budget.used -= self._size
            self._budget.changed.notify_all()


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
    """Returns a block that holds bytes of this process's budget. It can be named to a worker process."""
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


class OrderedMap(Generic[Item, Result]):
    """Items that threads map in parallel; yields the results in the order of the items, once.

    At most about `max_items` items with a total of `max_weight` are in work or wait to be consumed. A single
    heavier item runs alone. A chunk has at most `chunk_items` items with a total of a 64th of `max_weight`,
    or one heavier item. The first exception of `function` is raised at the position of its chunk, and items
    that have not started by then are dropped.

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

    def __init__(
        self,
        function: Callable[[list[Item]], list[Result]],
        items: Iterable[Item],
        executor: ThreadPoolExecutor,
        *,
        weigh: Callable[[Item], int],
        max_items: int,
        max_weight: int = IN_FLIGHT_BYTES,
        chunk_items: int = CHUNK_ITEMS,
    ) -> None:
        self._function, self._executor = function, executor
        self._chunks = _chunks(items, weigh, chunk_items, max_weight // 64)
        self._postponed: tuple[list[Item], int] | None = None  # the next chunk, which had no room
        self._max_items, self._max_weight = max_items, max_weight
        self._waiting: deque[tuple[Future[list[Result]], int, int]] = deque()
        self._count = self._weight = 0

    def __iter__(self) -> Iterator[Result]:
        try:
            self._start()
            while self._waiting:
                future, count, weight = self._waiting.popleft()
                yield from future.result()
                self._count -= count
                self._weight -= weight
                self._start()
        finally:
            self.close()

    def close(self) -> None:
        """Drops the items that have not started."""
        for future, _, _ in self._waiting:
            future.cancel()

    def _start(self) -> None:
        """Starts as many items as there is room for."""
        while chunk := self._postponed or next(self._chunks, None):
            items, cost = self._postponed = chunk
            if self._count and (
                self._count + len(items) > self._max_items or self._weight + cost > self._max_weight
            ):
                return
            self._waiting.append((self._executor.submit(self._function, items), len(items), cost))
            self._postponed = None
            self._count += len(items)
            self._weight += cost


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


def merge_streams(streams: Sequence[Iterable[Item]], threads: int) -> Iterator[Item]:
    """Yields the items of all streams as they arrive; one thread reads each stream.

    The first exception of a stream is raised here, and ends the other streams.
    """
    arrived: queue.Queue[list[Item] | Exception | None] = queue.Queue(maxsize=2 * threads)
    given_up = threading.Event()

    def hand_over(value: list[Item] | Exception | None) -> None:
        while not given_up.is_set():
            with contextlib.suppress(queue.Full):
                return arrived.put(value, timeout=0.1)

    def draw(stream: Iterable[Item]) -> None:
        try:
            for chunk, _ in _chunks(stream, lambda _: 0, _STREAM_CHUNK, 0):
                hand_over(chunk)
                if given_up.is_set():
                    return
            hand_over(None)
        except Exception as error:
            hand_over(error)

    with ThreadPoolExecutor(threads) as executor:
        try:
            for stream in streams:
                executor.submit(draw, stream)
            left = len(streams)
            while left:
                chunk = arrived.get()
                if isinstance(chunk, Exception):
                    raise chunk
                if chunk is None:
                    left -= 1
                else:
                    yield from chunk
        finally:
            given_up.set()
            executor.shutdown(wait=False, cancel_futures=True)
