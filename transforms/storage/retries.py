"""Repeats requests to a storage until they succeed, within the deadline of their operation."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from shardwright.schemas.image_ref import printable
from shardwright.transforms.storage.deadlines import Operation
from shardwright.transforms.storage.faults import too_slow

Result = TypeVar("Result")


def retried(
    operation: Operation,
    doing: str,
    send: Callable[[], Result],
    is_transient: Callable[[Exception], bool],
    pauses: tuple[float, float],
) -> Result:
    """Calls a function that sends the requests of an operation until it succeeds.

    Args:
      operation: operation that this thread is within.
      doing: name of the operation, for messages.
      send: function that sends the requests.
      is_transient: whether the same request may succeed after an error.
      pauses: seconds of the first pause, which doubles each time, and of the longest.

    Raises:
      Exception: that of the first attempt, or one that is not transient.
      EngineError: if bytes flowed too slowly until the deadline.
    """
    pause, longest = pauses
    while True:
        try:
            result = send()
            operation.contact.answered()
            return result
        except Exception as error:
            if not is_transient(error):
                raise
            if not operation.may_retry(error, pause):
                operation.give_up()
                if operation.was_slow:  # a client may read again by itself, so that only its last error shows
                    raise too_slow(doing, printable(operation.path)) from error
                raise operation.fault or error from None
        time.sleep(pause)
        pause = min(2 * pause, longest)
