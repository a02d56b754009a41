"""How long a storage may take: a deadline for each operation, a rate for its bytes, an end for a dead one.

An operation is what a caller asks for: one object read or written, one page of a listing. It includes all
attempts. It may take as long as the storage's patience (three minutes), not counting the time in which bytes
flow, and that time is limited too: by the object's size at `BYTES_PER_SECOND`. A storage is dead once all
attempts of this process have failed for as long as its patience; then every operation ends. Those that begin
later find out whether it is back: they share `LAST_TRY_SECONDS`, and then each gets `LATER_TRY_SECONDS`. So
all that a command does at its end takes few seconds.
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
from shardwright.transforms.storage.worker_waits import tell_command, waits_of_workers

#: Seconds to wait for a connection.
CONNECT_SECONDS = 10.0
#: Bytes must come and go at this rate, on average over each `STALL_SECONDS`. It leaves 64 connections of a
#: process a line of 2 Mbit/s.
BYTES_PER_SECOND = 4_000
STALL_SECONDS = 60.0
#: Seconds that operations share once the storage counts as dead, and those that each one gets after that.
LAST_TRY_SECONDS = 5.0
LATER_TRY_SECONDS = 1.0
#: Shortest time limit that a socket is given: a limit of 0 would mean that it does not wait at all.
_LEAST_SECONDS = 0.01
#: Bytes that are sent before the rate is looked at.
_SENT_AT_ONCE = 1 << 16
#: Answers that a storage gives that is alive but cannot do what it is asked for.
_BUSY = frozenset((408, 429))
_REFUSED, _SERVER_ERROR = 400, 500
_READING = frozenset(("GET", "HEAD"))


class TooSlow(TimeoutError):
    """The bytes of an object come or go at less than `BYTES_PER_SECOND`."""


class Contact:
    """What this process knows of a storage: whether it has answered, and since when everything fails.

    Args:
      patience: returns the seconds for which a fault is retried; told whether the storage ever answered.
    """

    def __init__(self, patience: Callable[[bool], float]) -> None:
        self._patience = patience
        self.forget()

    def forget(self) -> None:
        """Begins anew, with another storage."""
        self.has_answered = self._given_up = False
        self._alive, self._failing_since = -1.0, -1.0
        self._tries_end = self._tried_until = -math.inf

    def answered(self) -> None:
        """Notes that an operation is done."""
        self.has_answered = True
        self.alive()

    def alive(self) -> None:
        """Notes a sign of life: an answer, or bytes at a good rate."""
        self._alive, self._failing_since, self._given_up = time.monotonic(), -1.0, False
        self._tries_end = self._tried_until = -math.inf

    def failed(self, since: float) -> None:
        """Notes that an attempt failed; `since` is when its operation began."""
        if self._failing_since < 0:
            self._failing_since = max(since, self._alive)

    def given_up(self, since: float) -> None:
        """Notes that an operation ended for lack of time; `since` is when it began."""
        self._given_up = self._given_up or self._alive < since

    def patience(self) -> float:
        """Returns the seconds for which a fault is retried."""
        return self._patience(self.has_answered)

    def is_dead(self) -> bool:
        """Returns whether everything has failed for as long as a fault is retried."""
        return self.seconds_to_live() <= 0

    def last_try_seconds(self) -> float:
        """Returns the seconds that an operation gets that begins now, although the storage is dead.

        The next command of a long process begins anew: nobody has asked the storage for a while.
        """
        now = time.monotonic()
        if now > self._tried_until + LAST_TRY_SECONDS:
            self._tries_end = now + LAST_TRY_SECONDS
        seconds = max(self._tries_end - now, LATER_TRY_SECONDS)
        self._tried_until = max(self._tried_until, now + seconds)
        return seconds

    def seconds_to_live(self) -> float:
        """Returns after how many seconds the storage counts as dead if it keeps failing."""
        if self._failing_since < 0:
            return math.inf
        return 0.0 if self._given_up else self._failing_since + self.patience() - time.monotonic()


class Operation:
    """One operation of a storage, with all its attempts.

    Args:
      contact: with its storage.
      path: of the object or folder.
      size: bytes that it moves, as far as they are known before.

    Attributes:
      fault: why it was repeated first; None if it was not.
    """

    def __init__(self, contact: Contact, path: str, size: int = 0) -> None:
        self.contact, self.path = contact, path
        self.begun = self.quiet_since = time.monotonic()
        self._size, self._flowing = size, 0.0
        self.fault: Exception | None = None
        self._is_last_try = contact.is_dead()
        most: float | None = getattr(_local, "most_seconds", None)
        if self._is_last_try:
            seconds = contact.last_try_seconds()
            most = seconds if most is None else min(seconds, most)
        self._most = most

    def expect(self, size: int) -> None:
        """Notes the size of an answer, which limits how long its bytes may flow."""
        self._size = max(self._size, size)

    def flowed(self, seconds: float) -> None:
        """Notes that bytes came or went at a good rate for some seconds."""
        UNDERWAY.progress()
        self._flowing += seconds
        self.quiet_since = time.monotonic()

    def seconds_left(self) -> float:
        """Returns the seconds until the deadline; 0 or less after it."""
        seconds = self.contact.patience()
        if self._most is not None:
            seconds = min(seconds, self._most)
        seconds += min(self._flowing, self._size / BYTES_PER_SECOND)
        left = self.begun + seconds - time.monotonic()
        return left if self._is_last_try else min(left, self.contact.seconds_to_live())

    def may_retry(self, error: Exception, pause: float = 0.0) -> bool:
        """Notes a failed attempt; whether there is time for another one after a pause.

        `fault` keeps the first one, for the last one may only say that the deadline cut it off.
        """
        self.contact.failed(self.begun)
        self.fault = self.fault or error
        return self.seconds_left() > pause

    def give_up(self) -> None:
        """Notes that the operation ends for lack of time."""
        self.contact.failed(self.begun)
        self.contact.given_up(self.begun)


_local = threading.local()
_operations: dict[int, Operation] = {}
_count = itertools.count()


@contextlib.contextmanager
def within(operation: Operation) -> Iterator[None]:
    """Has the requests of this thread belong to an operation; must not stay open while a generator waits."""
    tell_command(own_longest_wait)
    before, number = current(), next(_count)
    _local.operation = _operations[number] = operation
    try:
        yield
    finally:
        del _operations[number]
        _local.operation = before


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Gives each operation that this thread begins in the block a few seconds only."""
    before = getattr(_local, "most_seconds", None)
    _local.most_seconds = seconds if before is None else min(before, seconds)
    try:
        yield
    finally:
        _local.most_seconds = before


def current() -> Operation | None:
    """Returns the operation that this thread is in."""
    found: Operation | None = getattr(_local, "operation", None)
    return found


def longest_wait() -> tuple[str, float] | None:
    """Returns the path that this command, with its worker processes, has waited for the longest.

    Returns:
      The path and the seconds; None if nothing is waited for.
    """
    own = own_longest_wait()
    return max([*waits_of_workers(), *([own] if own else [])], key=lambda wait: wait[1], default=None)


def own_longest_wait() -> tuple[str, float] | None:
    """Returns the path that this process has waited for the longest, and its seconds; None if none."""
    waiting = [(item.quiet_since, item.path) for item in list(_operations.values())]
    if not waiting:
        return None
    since, path = min(waiting)
    return path, time.monotonic() - since


class _Clock:
    """Watches the bytes of one request or answer.

    Args:
      is_reading: whether the bytes come.

    Attributes:
      is_answer: whether they are what was asked for, and so a sign of life; not the head of a refusal.
    """

    def __init__(self, is_reading: bool) -> None:
        self._operation = current()
        self.is_reading, self.is_answer = is_reading, False
        self.restart()

    def restart(self) -> None:
        """Begins a new stretch of time."""
        self._begun, self._bytes = time.monotonic(), 0

    def limit(self) -> float:
        """Returns the seconds that the next bytes may take.

        Raises:
          TimeoutError: if there are none left.
        """
        left = self._begun + STALL_SECONDS - time.monotonic()
        if self._operation:
            left = min(left, self._operation.seconds_left())
        if left <= 0:
            raise self.expired()
        return max(left, _LEAST_SECONDS)

    def expired(self) -> TimeoutError:
        """Returns the error that says that nothing came or went in time, or too little."""
        return TooSlow("bytes come or go too slowly") if self._bytes else TimeoutError("timed out")

    def count(self, size: int) -> None:
        """Counts bytes that came or went; begins a new stretch of time if they were enough."""
        self._bytes += size
        seconds = time.monotonic() - self._begun
        if self._bytes >= BYTES_PER_SECOND * seconds:
            if self._operation and size and (self.is_answer or not self.is_reading):
                self._operation.flowed(seconds)
                if self.is_answer:
                    self._operation.contact.alive()
            self.restart()


class _TimedReader(io.RawIOBase):
    """Reads a socket by a clock."""

    def __init__(self, raw: Any, sock: socket.socket) -> None:
        self.clock = _Clock(is_reading=True)
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
    """An answer that has to arrive in time."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._method: str
        whole: Any = self.fp
        self._reader = _TimedReader(whole.detach(), sock)
        self.fp = io.BufferedReader(self._reader)

    def begin(self) -> None:
        """Reads the head of the answer."""
        super().begin()
        self._reader.clock.restart()  # waiting for the head says nothing about the rate
        operation = current()
        if operation:
            operation.expect(self.length or 0)
            if self.status < _SERVER_ERROR and self.status not in _BUSY:
                self._reader.clock.is_answer = True
                operation.contact.alive()
            if (
                self._method not in _READING and self.status < _REFUSED
            ):  # a part of an upload or a copy is done
                operation.flowed(time.monotonic() - operation.quiet_since)


class _TimedConnection:
    """What makes a connection of urllib3 keep to the deadline of its thread's operation."""

    response_class = _TimedResponse
    sock: Any
    timeout: Any

    def connect(self) -> None:
        """Connects within what is left of the operation's time."""
        operation = current()
        if operation:
            left = operation.seconds_left()
            if left <= 0:
                raise TimeoutError("timed out")
            self.timeout = max(min(CONNECT_SECONDS, left), _LEAST_SECONDS)
        super().connect()  # type: ignore[misc]

    def send(self, data: Any) -> None:
        """Sends bytes, a stretch at a time."""
        clock = _Clock(is_reading=False)
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
            # What is small goes no further than into this machine's buffers, also if nobody receives it.
            clock.count(len(stretch) if len(data) > _SENT_AT_ONCE else 0)


def timed_pools(http_pool: type, https_pool: type) -> dict[str, type]:
    """Returns urllib3's pools of connections, or those of a library built on it, with deadlines."""
    return {"http": _timed_pool(http_pool), "https": _timed_pool(https_pool)}


def _timed_pool(pool: Any) -> type:
    connection = type(f"Timed{pool.ConnectionCls.__name__}", (_TimedConnection, pool.ConnectionCls), {})
    return type(f"Timed{pool.__name__}", (pool,), {"ConnectionCls": connection})
