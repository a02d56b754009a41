"""Limits how long a storage may take: a deadline per operation, a minimum rate, an end for a dead storage.

An operation is one request of a caller: one object read or written, or one page of a listing, with all
attempts. It may take as long as the storage's patience (three minutes), not counting the time in which bytes
flow. That time is limited by the object's size at `BYTES_PER_SECOND`. A storage is dead if all attempts of
this process have failed for as long as its patience. Then every operation ends. Later operations check
whether the storage is back: they share `LAST_TRY_SECONDS`, and then each gets `LATER_TRY_SECONDS`. So the
last steps of a command take only seconds.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import itertools
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from shardwright.transforms.concurrency.underway import UNDERWAY

#: Seconds to wait for a connection.
CONNECT_SECONDS = 10.0
#: Minimum rate of bytes, on average over each `STALL_SECONDS`. With 64 connections of a process, it works on
#: a line of 2 Mbit/s.
BYTES_PER_SECOND = 4_000
STALL_SECONDS = 60.0
#: Seconds that operations share once the storage counts as dead, and those that each one gets after that.
LAST_TRY_SECONDS = 5.0
LATER_TRY_SECONDS = 1.0
#: Shortest timeout for a socket: a timeout of 0 would mean not to wait at all.
_MIN_SECONDS = 0.01
#: Number of bytes that are sent before the rate is checked.
_SENT_AT_ONCE = 1 << 16
#: Answers of a storage that is alive but cannot serve a request.
_BUSY = frozenset((408, 429))
_REFUSED, _SERVER_ERROR = 400, 500
_READING = frozenset(("GET", "HEAD"))


class TooSlow(TimeoutError):
    """The bytes of an object flow at less than `BYTES_PER_SECOND`."""


class Contact:
    """The state of a storage for this process: whether it has answered, and since when all requests fail.

    Args:
      patience: returns the seconds for which faults are retried, given whether the storage ever answered.
    """

    def __init__(self, patience: Callable[[bool], float]) -> None:
        self._patience = patience
        self.forget()

    def forget(self) -> None:
        """Resets the state, for another storage."""
        self.has_answered = self._given_up = False
        self._alive, self._failing_since = -1.0, -1.0
        self._tries_end = self._tried_until = -math.inf

    def answered(self) -> None:
        """Records that an operation succeeded."""
        self.has_answered = True
        self.alive()

    def alive(self) -> None:
        """Records a sign of life: an answer, or bytes at a good rate."""
        self._alive, self._failing_since, self._given_up = time.monotonic(), -1.0, False
        self._tries_end = self._tried_until = -math.inf

    def failed(self, since: float) -> None:
        """Records that an attempt failed; `since` is when its operation began."""
        if self._failing_since < 0:
            self._failing_since = max(since, self._alive)

    def given_up(self, since: float) -> None:
        """Records that an operation ran out of time; `since` is when it began."""
        self._given_up = self._given_up or self._alive < since

    def patience(self) -> float:
        """Returns the seconds for which a fault is retried."""
        return self._patience(self.has_answered)

    def is_dead(self) -> bool:
        """Returns whether all attempts have failed for as long as faults are retried."""
        return self.seconds_to_live() <= 0

    def last_try_seconds(self) -> float:
        """Returns the seconds that an operation gets if it begins now, although the storage is dead.

        The next command in a long process starts fresh, because the storage has not been asked for a while.
        """
        now = time.monotonic()
        if now > self._tried_until + LAST_TRY_SECONDS:
            self._tries_end = now + LAST_TRY_SECONDS
        seconds = max(self._tries_end - now, LATER_TRY_SECONDS)
        self._tried_until = max(self._tried_until, now + seconds)
        return seconds

    def seconds_to_live(self) -> float:
        """Returns the seconds until the storage counts as dead if it keeps failing."""
        if self._failing_since < 0:
            return math.inf
        return 0.0 if self._given_up else self._failing_since + self.patience() - time.monotonic()


class Operation:
    """One operation of a storage, with all its attempts.

    Args:
      contact: state of its storage.
      path: path of the object or folder.
      size: number of bytes to transfer, if known in advance.

    Attributes:
      fault: fault of the first attempt; None if it was not repeated.
      was_slow: whether an attempt ended because bytes flowed too slowly.
    """

    def __init__(self, contact: Contact, path: str, size: int = 0) -> None:
        self.contact, self.path = contact, path
        self.start_time = self.quiet_since = time.monotonic()
        self._size, self._flowing = size, 0.0
        self.fault: Exception | None = None
        self.was_slow = False
        self._is_last_try = contact.is_dead()
        max_seconds: float | None = getattr(_local, "max_seconds", None)
        if self._is_last_try:
            seconds = contact.last_try_seconds()
            max_seconds = seconds if max_seconds is None else min(seconds, max_seconds)
        self._max_seconds = max_seconds

    def expect(self, size: int) -> None:
        """Records the size of an answer, which limits how long its bytes may flow."""
        self._size = max(self._size, size)

    def flowed(self, seconds: float) -> None:
        """Records that bytes flowed at a good rate for some seconds."""
        UNDERWAY.progress()
        self._flowing += seconds
        self.quiet_since = time.monotonic()

    def seconds_left(self) -> float:
        """Returns the seconds until the deadline; 0 or less after it."""
        seconds = self.contact.patience()
        if self._max_seconds is not None:
            seconds = min(seconds, self._max_seconds)
        seconds += min(self._flowing, self._size / BYTES_PER_SECOND)
        left = self.start_time + seconds - time.monotonic()
        return left if self._is_last_try else min(left, self.contact.seconds_to_live())

    def may_retry(self, error: Exception, pause: float = 0.0) -> bool:
        """Records a failed attempt; returns whether there is time for another one after a pause.

        `fault` keeps the first fault, because the last one may only say that the deadline passed.
        """
        self.contact.failed(self.start_time)
        self.fault = self.fault or error
        return self.seconds_left() > pause

    def give_up(self) -> None:
        """Records that the operation ran out of time."""
        self.contact.failed(self.start_time)
        self.contact.given_up(self.start_time)


_local = threading.local()
_operations: dict[int, Operation] = {}
_count = itertools.count()


@contextlib.contextmanager
def within(operation: Operation) -> Iterator[None]:
    """Assigns the requests of this thread to an operation; must not stay open while a generator waits."""
    before, number = current(), next(_count)
    _local.operation = _operations[number] = operation
    try:
        yield
    finally:
        del _operations[number]
        _local.operation = before


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Limits each operation that this thread begins in the block to a few seconds."""
    before = getattr(_local, "max_seconds", None)
    _local.max_seconds = seconds if before is None else min(before, seconds)
    try:
        yield
    finally:
        _local.max_seconds = before


def current() -> Operation | None:
    """Returns the current operation of this thread."""
    found: Operation | None = getattr(_local, "operation", None)
    return found


def longest_wait() -> tuple[str, float] | None:
    """Returns the path and seconds of the longest current wait of this process; None if it does not wait."""
    waiting = [(item.quiet_since, item.path) for item in list(_operations.values())]
    if not waiting:
        return None
    since, path = min(waiting)
    return path, time.monotonic() - since


class TransferClock:
    """Watches the bytes of one request or answer.

    Args:
      is_reading: whether the bytes are received.

    Attributes:
      is_answer: whether the bytes are the requested data, and so a sign of life; not the head of a refusal.
    """

    def __init__(self, is_reading: bool) -> None:
        self._operation = current()
        self.is_reading, self.is_answer, self._size = is_reading, False, 0
        self.restart()

    def answer_begins(self, status: int, size: int) -> None:
        """Records the head of an answer.

        Args:
          status: HTTP status.
          size: number of bytes of the body; 0 or less if unknown.
        """
        self.restart()  # waiting for the head says nothing about the rate
        self._size = size
        self.is_answer = status < _SERVER_ERROR and status not in _BUSY
        self._tell()

    def adopt(self, operation: Operation | None) -> None:
        """Makes the bytes part of an operation that may have started after the request."""
        self._operation = operation
        self._tell()

    def _tell(self) -> None:
        """Tells the operation what the head of the answer says."""
        if self._operation:
            self._operation.expect(self._size)
            if self.is_answer:
                self._operation.contact.alive()

    def restart(self) -> None:
        """Starts a new period."""
        self._start, self._bytes = time.monotonic(), 0

    def limit(self) -> float:
        """Returns the seconds that the next bytes may take.

        Raises:
          TimeoutError: if no time is left.
        """
        left = self._start + STALL_SECONDS - time.monotonic()
        if self._operation:
            left = min(left, self._operation.seconds_left())
        if left <= 0:
            raise self.expired()
        return max(left, _MIN_SECONDS)

    def expired(self) -> TimeoutError:
        """Returns the error for bytes that did not flow in time, or too slowly."""
        if self._bytes and self._operation:
            self._operation.was_slow = True
        return TooSlow("the transfer is too slow") if self._bytes else TimeoutError("timed out")

    def count(self, size: int) -> None:
        """Counts transferred bytes; starts a new period if they were enough."""
        self._bytes += size
        seconds = time.monotonic() - self._start
        if self._bytes >= BYTES_PER_SECOND * seconds:
            if self._operation and size and (self.is_answer or not self.is_reading):
                self._operation.flowed(seconds)
                if self.is_answer:
                    self._operation.contact.alive()
            self.restart()


class _TimedReader(io.RawIOBase):
    """Reads a socket within the limits of a clock."""

    def __init__(self, raw: Any, sock: socket.socket) -> None:
        self.clock = TransferClock(is_reading=True)
        self._raw, self._sock = raw, sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self.clock.limit())
        try:
            size: int | None = self._raw.readinto(buffer)
        except TimeoutError as error:
            raise self.clock.expired() from error
        self.clock.count(size or 0)
        return size

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    """An answer that must arrive in time."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._method: str
        whole: Any = self.fp
        self._reader = _TimedReader(whole.detach(), sock)
        self.fp = io.BufferedReader(self._reader)

    def begin(self) -> None:
        """Reads the head of the answer."""
        super().begin()
        self._reader.clock.answer_begins(self.status, self.length or 0)
        operation = current()
        # Part of an upload or a copy is done.
        if operation and self._method not in _READING and self.status < _REFUSED:
            operation.flowed(time.monotonic() - operation.quiet_since)


class _TimedConnection:
    """Mixin that makes a connection of urllib3 keep the deadline of its thread's operation."""

    response_class = _TimedResponse
    sock: Any
    timeout: Any

    def connect(self) -> None:
        """Connects within the remaining time of the operation."""
        operation = current()
        if operation:
            left = operation.seconds_left()
            if left <= 0:
                raise TimeoutError("timed out")
            self.timeout = max(min(CONNECT_SECONDS, left), _MIN_SECONDS)
        super().connect()  # type: ignore[misc]

    def send(self, data: Any) -> None:
        """Sends bytes in parts."""
        clock = TransferClock(is_reading=False)
        stretches: Any = (data,)
        if isinstance(data, bytes | bytearray | memoryview):
            view = memoryview(data)
            stretches = (view[i : i + _SENT_AT_ONCE] for i in range(0, len(view), _SENT_AT_ONCE))
        for stretch in stretches:
            if self.sock is not None:
                self.sock.settimeout(clock.limit())
            try:
                super().send(stretch)  # type: ignore[misc]
            except TimeoutError as error:
                raise clock.expired() from error
            # Small data only reaches the buffers of this machine, even if nobody receives it.
            clock.count(len(stretch) if len(data) > _SENT_AT_ONCE else 0)


def timed_pools(http_pool: type, https_pool: type) -> dict[str, type]:
    """Returns the connection pools of urllib3, or of a library built on it, with deadlines."""
    return {"http": _timed_pool(http_pool), "https": _timed_pool(https_pool)}


def _timed_pool(pool: Any) -> type:
    connection = type(f"Timed{pool.ConnectionCls.__name__}", (_TimedConnection, pool.ConnectionCls), {})
    return type(f"Timed{pool.__name__}", (pool,), {"ConnectionCls": connection})


def timed_adapter(connections: int) -> Any:
    """Returns what holds the connections of a session of requests and makes them keep to deadlines."""
    from requests.adapters import HTTPAdapter
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    pools = timed_pools(HTTPConnectionPool, HTTPSConnectionPool)

    class TimedAdapter(HTTPAdapter):  # type: ignore[misc, unused-ignore]
        def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
            super().init_poolmanager(*args, **kwargs)
            self.poolmanager.pool_classes_by_scheme = pools

        def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
            manager = super().proxy_manager_for(*args, **kwargs)
            manager.pool_classes_by_scheme = pools
            return manager

    return TimedAdapter(connections, connections)
