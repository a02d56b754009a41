"""Runs the transfers of libcurl of a process in one thread.

A thread for each transfer takes about ten times the processor time: an answer needs Python's lock for each
line of its head and each part of its body, and all threads want it at once.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

try:
    import pycurl
except ImportError:  # no wheel for this system: Google's own client reads
    pycurl = None

#: Transfers at once before the first answer; each answer allows one more. A server may refuse many new
#: connections at once.
_FIRST_TRANSFERS = 8
#: Seconds between two looks at the deadlines of the transfers.
LOOK_SECONDS = 0.05
#: Seconds after which a waiting thread reports that bytes arrive.
_REPORT_SECONDS = 1.0
#: Longest time to wait for a whole group before a thread waits for its own transfer, in seconds.
_GROUP_SECONDS = 0.2
#: Seconds without a transfer after which the thread ends; the connections stay.
_IDLE_SECONDS = 2.0
#: Seconds to wait for the end of the thread.
_STOP_SECONDS = 1.0


class Group:
    """Transfers that began ahead together. One thread needs all of them, so it need not wake up for each.

    Args:
      size: number of transfers.
    """

    def __init__(self, size: int) -> None:
        self.left = size
        self.ended = threading.Lock()  # released when all have ended
        self.ended.acquire()

    def one_ends(self) -> None:
        """Notes the end of a transfer."""
        self.left -= 1
        if not self.left:
            self.ended.release()


class Transfer:
    """One request at a time, with a handle of libcurl that has all its options.

    Args:
      curl: the handle. Its callbacks run in the thread of the transfers.

    Attributes:
      is_started: whether the request is being sent, or has ended.
      error: libcurl's code and message for a transfer that failed; None if it succeeded.
      fault: exception that ended the transfer; None if none did.
      group: the transfers with which it began; None if it began alone.
    """

    def __init__(self, curl: Any) -> None:
        self.curl = curl
        self.ended = threading.Lock()  # released when the transfer ends
        self.ended.acquire()
        self.prepare()

    def prepare(self) -> None:
        """Forgets the last request."""
        self.is_started = False
        self.error: tuple[int, str] | None = None
        self.fault: BaseException | None = None
        self.group: Group | None = None

    def starts(self) -> None:
        """Notes that the request is being sent."""
        self.is_started = True

    def look(self) -> None:
        """Looks at the bytes that have arrived, and at the deadline.

        Raises:
          TimeoutError: if no time is left.
        """

    def report(self) -> None:
        """Reports progress; the thread that waits for the transfer calls it."""


class Transfers:
    """The transfers of a process, which share their connections. A child of `fork` must not use them.

    Args:
      connections: number of transfers at once, and of connections that stay open between them. A transfer for
        which a thread waits always begins, so that its deadline only counts its own time.
    """

    def __init__(self, connections: int) -> None:
        self._connections, self._at_once = connections, min(connections, _FIRST_TRANSFERS)
        self._orders: deque[tuple[Callable[[Transfer], None], Sequence[Transfer]]] = deque()
        self._queued: dict[Transfer, None] = {}
        self._running: dict[Any, Transfer] = {}
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._sleeps = self._stopped = False
        self._alarm, self._waker = os.pipe()
        os.set_blocking(self._alarm, False)
        os.set_blocking(self._waker, False)
        weakref.finalize(self, _close, self._alarm, self._waker).atexit = False
        self._multi: Any = None  # made by the thread
        _all.add(self)

    def stop(self) -> None:
        """Ends the thread, before the interpreter does. Transfers that have not ended never will."""
        thread, self._stopped = self._thread, True
        if thread is not None:
            os.write(self._waker, b"\0")
            thread.join(_STOP_SECONDS)

    def begin(self, transfers: Sequence[Transfer], ahead: bool = False) -> None:
        """Begins transfers.

        Args:
          transfers: the transfers.
          ahead: whether nobody waits for them yet, so that they may begin later.
        """
        if self._stopped:
            raise RuntimeError("no transfers at the end of the process")
        if ahead:
            group = Group(len(transfers))
            for transfer in transfers:
                transfer.group = group
        self._order(self._queue if ahead else self._run, transfers)

    def wait(self, transfer: Transfer) -> None:
        """Waits until a transfer has ended. One that is still queued begins at once."""
        if not transfer.is_started:
            self._order(self._hurry, (transfer,))
        group = transfer.group
        try:
            if group is not None and group.left and transfer.ended.locked():
                group.ended.acquire(timeout=_GROUP_SECONDS)
            while not transfer.ended.acquire(timeout=_REPORT_SECONDS):
                transfer.report()
                thread = self._thread
                if thread is None or not thread.is_alive():
                    with self._starting:  # it may be ending the transfers just now
                        if transfer.ended.locked():
                            raise RuntimeError("the thread of the transfers has ended")
        except BaseException:  # a signal
            self.cancel(transfer)
            raise

    def cancel(self, *transfers: Transfer) -> None:
        """Ends transfers for which nobody will wait; they must not be used again."""
        self._order(self._drop, transfers)

    def _order(self, order: Callable[[Transfer], None], transfers: Sequence[Transfer]) -> None:
        """Has the thread call a function for each transfer; starts the thread if there is none."""
        self._orders.append((order, transfers))
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._work, name="shardwright-transfers", daemon=True)
                    try:
                        thread.start()
                    except BaseException:  # the system has no more threads
                        self._orders.remove((order, transfers))
                        raise
                    self._thread = thread
        if self._sleeps:
            with contextlib.suppress(BlockingIOError):  # it is about to wake up
                os.write(self._waker, b"\0")

    # All that follows runs in the thread.

    def _open(self) -> None:
        """Makes the handle of libcurl that holds the connections."""
        self._poller = select.poll()
        self._poller.register(self._alarm, select.POLLIN)
        self._timer: float | None = None
        multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_MAXCONNECTS, self._connections)
        poller = self._poller

        def on_socket(what: int, descriptor: int, *_: object) -> None:
            if what == pycurl.POLL_REMOVE:
                with contextlib.suppress(KeyError):
                    poller.unregister(descriptor)
                return
            reads = select.POLLIN if what & pycurl.POLL_IN else 0
            poller.register(descriptor, reads | (select.POLLOUT if what & pycurl.POLL_OUT else 0))

        multi.setopt(pycurl.M_SOCKETFUNCTION, on_socket)
        this = weakref.ref(self)

        def on_timer(milliseconds: int) -> None:
            if (transfers := this()) is not None:
                transfers._timer = None if milliseconds < 0 else time.monotonic() + milliseconds / 1e3

        multi.setopt(pycurl.M_TIMERFUNCTION, on_timer)
        self._multi = multi

    def _work(self) -> None:
        """Runs transfers until there have been none for a while."""
        try:
            if self._multi is None:
                self._open()
            busy_at = time.monotonic()
            look_at = busy_at + LOOK_SECONDS
            while not self._stopped:
                self._obey()
                now = time.monotonic()
                if self._running:
                    busy_at = now
                elif now - busy_at > _IDLE_SECONDS and self._may_end():
                    return
                if now >= look_at:
                    self._look()
                    look_at = now + LOOK_SECONDS
                self._move_bytes(look_at - now if self._running else _IDLE_SECONDS)
                self._collect()
        except BaseException as error:
            self._fail(error)

    def _may_end(self) -> bool:
        with self._starting:
            thread, self._thread = self._thread, None
            if self._orders:
                self._thread = thread
            return self._thread is None

    def _obey(self) -> None:
        orders = self._orders
        while orders:
            order, transfers = orders[0]  # it stays until all is done, so that `_fail` finds it
            for transfer in transfers:
                order(transfer)
            orders.popleft()
        while self._queued and len(self._running) < self._at_once:
            self._hurry(next(iter(self._queued)))

    def _queue(self, transfer: Transfer) -> None:
        self._queued[transfer] = None

    def _hurry(self, transfer: Transfer) -> None:
        if transfer in self._queued:
            del self._queued[transfer]
            self._run(transfer)

    def _run(self, transfer: Transfer) -> None:
        transfer.starts()
        self._running[transfer.curl] = transfer
        self._multi.add_handle(transfer.curl)

    def _drop(self, transfer: Transfer) -> None:
        self._queued.pop(transfer, None)
        if self._running.pop(transfer.curl, None) is not None:
            self._multi.remove_handle(transfer.curl)

    def _look(self) -> None:
        """Ends the transfers that have no time left."""
        for transfer in [*self._running.values()]:
            try:
                transfer.look()
            except BaseException as error:
                transfer.fault = error
                self._end(transfer, (pycurl.E_ABORTED_BY_CALLBACK, "timed out"))

    def _move_bytes(self, seconds: float) -> None:
        """Waits for bytes, orders or a timer of libcurl, and lets libcurl receive and send.

        Args:
          seconds: longest time to wait.
        """
        if self._timer is not None:
            seconds = min(seconds, self._timer - time.monotonic())
        self._sleeps = True
        ready = self._poller.poll(0 if self._orders else max(seconds, 0.0) * 1000)
        self._sleeps = False
        for descriptor, events in ready:
            if descriptor == self._alarm:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._alarm, 4096)
                continue
            reads = pycurl.CSELECT_IN if events & ~select.POLLOUT else 0
            writes = pycurl.CSELECT_OUT if events & select.POLLOUT else 0
            self._multi.socket_action(descriptor, reads | writes)
        if self._timer is not None and self._timer <= time.monotonic():
            self._timer = None
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def _collect(self) -> None:
        """Ends the transfers that libcurl has finished."""
        more = 1
        while more:
            more, finished, failed = self._multi.info_read()
            self._at_once = min(self._at_once + len(finished), self._connections)
            for curl in finished:
                self._end(self._running[curl], None)
            for curl, code, text in failed:
                self._end(self._running[curl], (code, text))

    def _end(self, transfer: Transfer, error: tuple[int, str] | None) -> None:
        self._multi.remove_handle(transfer.curl)
        del self._running[transfer.curl]
        transfer.error, group = error, transfer.group
        transfer.ended.release()  # from now on, it may get another request
        if group is not None:
            group.one_ends()

    def _fail(self, error: BaseException) -> None:
        """Ends all transfers after a bug. The next thread begins with new connections."""
        with self._starting:
            self._thread = None  # first: an order that comes too late for this loop needs another thread
            waiting = dict.fromkeys([*self._running.values(), *self._queued])
            while self._orders:
                order, transfers = self._orders.popleft()
                if order != self._drop:
                    waiting.update(dict.fromkeys(transfers))
            self._running, self._queued, self._multi = {}, {}, None
            for transfer in waiting:
                transfer.is_started, transfer.fault, transfer.error = True, error, (0, str(error))
                if transfer.ended.locked():
                    transfer.ended.release()


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


_all: weakref.WeakSet[Transfers] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Ends all threads: at its end, the interpreter would end them in the middle of libcurl."""
    for transfers in [*_all]:
        transfers.stop()
