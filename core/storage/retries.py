"""How long a request is repeated: one policy for all storages that answer over a network.

An operation is one request of a caller: one object read or written, or one page of a listing, with all
attempts. It ends when nothing has succeeded for `PATIENCE_SECONDS`; each part of a large object that has
passed counts. Each attempt gets a timeout of its client that is not longer than what is left.

A storage is dead if all attempts of this process have failed for that long, or for `FIRST_PATIENCE_SECONDS`
before its first answer. Then every operation ends. Later operations only check whether the storage is back:
they share `LAST_TRY_SECONDS`, and then each gets `LATER_TRY_SECONDS`. So the last steps of a command take
seconds.
"""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.storage.faults import Fault

Result = TypeVar("Result")

#: Seconds for which transient faults are retried, and the same for a storage that has not answered yet.
PATIENCE_SECONDS, FIRST_PATIENCE_SECONDS = 180.0, 20.0
#: Seconds that operations share once the storage counts as dead, and those that each one gets after that.
LAST_TRY_SECONDS, LATER_TRY_SECONDS = 5.0, 1.0
#: Seconds without a request after which a dead storage gets another chance, as in a notebook.
_FORGET_SECONDS = 60.0
FIRST_PAUSE, MAX_PAUSE = 0.2, 10.0


class Contact:
    """The state of a storage for this process: whether it has answered, and since when all requests fail."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Resets the state, for another server."""
        self._answered_at, self._failed_at, self._failing_since = -math.inf, -math.inf, math.inf

    def answered(self) -> None:
        """Records an answer."""
        self._answered_at, self._failing_since = time.monotonic(), math.inf

    def failed(self, since: float) -> None:
        """Records that an attempt failed; `since` is when its operation began."""
        self._failed_at = time.monotonic()
        self._failing_since = min(self._failing_since, max(since, self._answered_at))

    def patience(self) -> float:
        """Returns the seconds for which a fault is retried."""
        return PATIENCE_SECONDS if self._answered_at > -math.inf else FIRST_PATIENCE_SECONDS

    def end(self) -> float:
        """Returns when the storage counts as dead if it keeps failing, on the monotonic clock."""
        if time.monotonic() > self._failed_at + _FORGET_SECONDS:
            self._failing_since = math.inf
        return self._failing_since + self.patience()


class Operation:
    """One operation of a storage, with all its attempts. It belongs to the thread that enters it.

    Args:
      contact: State of its storage.
      path: Path of the object or folder.

    Attributes:
      quiet_since: When it began or last made progress, on the monotonic clock.
    """

    def __init__(self, contact: Contact, path: str) -> None:
        self.contact, self.path = contact, path
        self.start = self.quiet_since = time.monotonic()
        self._reached = 0
        self._is_last_try = self.start >= contact.end()
        self._end = math.inf
        if self._is_last_try:
            self._end = max(contact.end() + LAST_TRY_SECONDS, self.start + LATER_TRY_SECONDS)
        max_seconds: float | None = getattr(_local, "max_seconds", None)
        if max_seconds is not None:
            self._end = min(self._end, self.start + max_seconds)

    def __enter__(self) -> Operation:
        _local.operation = _operations[id(self)] = self
        return self

    def __exit__(self, *raised: object) -> None:
        del _operations[id(self)]
        _local.operation = None

    def reached(self, offset: int) -> None:
        """Records progress: the bytes up to an offset have passed. Bytes that are repeated do not count."""
        if offset > self._reached:
            self._reached, self.quiet_since = offset, time.monotonic()
            UNDERWAY.progress()

    def goes_on(self) -> bool:
        """Records a failed request that its client may repeat itself; returns whether there is time left."""
        self.contact.failed(self.start)
        return self.seconds_left() > 0

    def seconds_left(self) -> float:
        """Returns the seconds until the deadline; 0 or less after it."""
        end = min(self._end, self.quiet_since + self.contact.patience())
        if not self._is_last_try:
            end = min(end, self.contact.end())
        return end - time.monotonic()


_local = threading.local()
_operations: dict[int, Operation] = {}


def current() -> Operation:
    """Returns the operation of this thread, or a new one that nobody waits for."""
    operation: Operation | None = getattr(_local, "operation", None)
    return operation or Operation(Contact(), "")


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Limits each operation that this thread begins in the block to a few seconds."""
    before = getattr(_local, "max_seconds", None)
    _local.max_seconds = seconds if before is None else min(before, seconds)
    try:
        yield
    finally:
        _local.max_seconds = before


def longest_wait() -> tuple[str, float] | None:
    """Returns the path and seconds of the longest current wait of this process; None if it does not wait."""
    waiting = [(item.quiet_since, item.path) for item in list(_operations.values())]
    if not waiting:
        return None
    since, path = min(waiting)
    return path, time.monotonic() - since


def retried(
    contact: Contact, path: str, send: Callable[[], Result], fault_of: Callable[[Exception], Fault | None]
) -> Result:
    """Calls a function until it succeeds, with exponential backoff and within one deadline.

    Args:
      contact: State of the storage.
      path: Path of the object or folder.
      send: Function that sends requests.
      fault_of: Explains an error of `send`; None for one that is not of the storage.

    Raises:
      Exception: The explanation of the first fault, or of one that is not transient.
    """
    with Operation(contact, path) as operation:
        first: Fault | None = None
        pause, count = FIRST_PAUSE, 0
        while True:
            try:
                result = send()
            except Exception as error:
                fault = fault_of(error)
                if fault is None:
                    raise
                if not fault.retries:
                    contact.answered()
                    raise fault.error from error
                contact.failed(operation.start)
                first = first or fault  # the last one may only say that the deadline has passed
                if count >= fault.retries or operation.seconds_left() <= pause:
                    raise first.error from error
            else:
                contact.answered()
                return result
            time.sleep(random.uniform(pause / 2, pause))
            pause, count = min(2 * pause, MAX_PAUSE), count + 1
