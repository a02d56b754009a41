"""Clients of the storages' own libraries, whose requests are repeated until they succeed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from shardwright.schemas.image_ref import printable
from shardwright.transforms.concurrency.workers import job_options
from shardwright.transforms.storage.deadlines import Contact, Operation, within
from shardwright.transforms.storage.faults import too_slow
from shardwright.transforms.storage.quick_reads import QuickReader

Result = TypeVar("Result")

#: Seconds for which a transient error is retried, and the same for a storage that has not answered yet.
RETRY_SECONDS, FIRST_RETRY_SECONDS = 180.0, 20.0
_RETRY_FIRST, _RETRY_MAX = 0.2, 10.0


class RetryingClient:
    """The client of a storage's own library. Threads share its connections.

    Args:
      make: function of Beam's options that makes the client.
      translated_errors: function of the name of an operation and a path that returns a context manager. It
        turns errors of the client into one sentence.
      is_transient: whether the same request may succeed after an error.

    Attributes:
      quick_readers: buckets that the client has read -> their quick readers; None if there is none.
    """

    def __init__(
        self,
        make: Callable[[Any], Any],
        translated_errors: Callable[[str, str], AbstractContextManager[None]],
        is_transient: Callable[[Exception], bool],
    ) -> None:
        self._make, self._translated_errors, self._is_transient = make, translated_errors, is_transient
        self._lock = threading.Lock()
        self._contact = Contact(lambda answered: RETRY_SECONDS if answered else FIRST_RETRY_SECONDS)
        self.quick_readers: dict[str, QuickReader | None] = {}
        self.forget()

    def forget(self) -> None:
        """Drops the client, so that the next request makes a new one."""
        self._made: tuple[Any, Any] = (None, None)  # the client and its options
        self.quick_readers.clear()
        self._contact.forget()

    def get(self) -> Any:
        """Returns the client of this process; other options of Beam make a new one."""
        options = job_options()
        with self._lock:
            if self._made[0] is None or self._made[1] is not options:
                self.forget()
                self._made = (self._make(options), options)
            return self._made[0]

    def retried(self, doing: str, path: str, send: Callable[[], Result], size: int = 0) -> Result:
        """Calls a function that sends requests until it succeeds, within one deadline.

        Args:
          doing: name of the operation, for messages.
          path: path of the object or folder.
          send: function that sends the requests.
          size: number of bytes to transfer, if known.

        Raises:
          Exception: that of the first attempt, or one that is not transient, translated.
          EngineError: if bytes flowed too slowly until the deadline.
        """
        with self._translated_errors(doing, path):
            self.get()  # made before the clock starts
        operation = Operation(self._contact, path, size)
        with self._translated_errors(doing, path), within(operation):
            pause = _RETRY_FIRST
            while True:
                try:
                    result = send()
                    self._contact.answered()
                    return result
                except Exception as error:
                    if not self._is_transient(error):
                        raise
                    if not operation.may_retry(error, pause):
                        operation.give_up()
                        if operation.was_slow:  # the client may read again, so that only its last error shows
                            raise too_slow(doing, printable(path)) from error
                        raise operation.fault or error from None
                time.sleep(pause)
                pause = min(2 * pause, _RETRY_MAX)
