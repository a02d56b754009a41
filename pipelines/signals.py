"""Ends a command cleanly after Ctrl-C, SIGTERM (a scheduler) or SIGHUP (a closed terminal)."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

from shardwright.pipelines import log
from shardwright.pipelines.watchdog import children, end_process, kill_children
from shardwright.schemas.codes import ExitCode

#: Signals that ask a process to end.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Seconds for this process to exit cleanly, and for its threads to return from decoders.
FORCE_SECONDS = 4.0
#: Seconds in which a repeated signal is ignored: `timeout` sends it to a process and then to its group.
_REPEATED_SECONDS = 2.0


class Ending:
    """The state of a process that is asked to end.

    Attributes:
      reason: Reason of the end, for the beginning of the message; empty for Ctrl-C, and before a signal.
      last_words: Message if the process has to be ended by force.
      is_over: Whether the block has ended.
      received: Time of the first signal on the monotonic clock; 0 before.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.last_words = "interrupted; run again."
        self.is_over = False
        self.received = 0.0
        self._others = children()

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal.

        Worker processes write no files, so they are killed: their callers must not wait for them.

        Raises:
          KeyboardInterrupt: Always, unless the same signal came a moment ago.
        """
        now = time.monotonic()
        repeated = bool(self.received) and now - self.received < _REPEATED_SECONDS
        if not self.received:
            self.received = now
            if number != signal.SIGINT:
                self.reason = f"it was told to end ({signal.Signals(number).name}); "
            threading.Thread(target=self._end_by_force, daemon=True).start()
        kill_children(self._others)
        if not repeated:
            raise KeyboardInterrupt

    def _end_by_force(self) -> None:
        """Ends the process if it has not exited cleanly because a thread is inside a decoder."""
        time.sleep(FORCE_SECONDS)
        if not self.is_over:
            log.end(self.last_words, int(ExitCode.INTERRUPTED))
        elif not getattr(threading, "_SHUTTING_DOWN", False):
            return  # the command has ended, and its caller continues
        end_process(int(ExitCode.INTERRUPTED))


@contextlib.contextmanager
def graceful_shutdown() -> Iterator[Ending]:
    """Treats each signal that asks a process to end like Ctrl-C on a terminal while the block runs.

    A signal that is ignored stays ignored, as under `nohup`.
    """
    ending = Ending()
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    before = {
        number: signal.signal(number, ending.receive)
        for number in ENDING
        if signal.getsignal(number) not in (signal.SIG_IGN, None)
    }
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        ending.is_over = True
