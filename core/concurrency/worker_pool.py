"""The pool of this process: threads that decode and encode, each in a worker process or by itself."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, TypeVar

from shardwright.core.concurrency.resources import (
    PROCESSES,
    job_options,
    usable_cpus,
    values_of,
    worker_threads,
)
from shardwright.core.concurrency.thread_pool import CHUNK_ITEMS, IN_FLIGHT_BYTES, each, ordered_map
from shardwright.core.concurrency.underway import UNDERWAY, Task
from shardwright.core.concurrency.watchdog import watch_engine_worker
from shardwright.core.concurrency.worker_process import PackedFunction, WorkerDied, WorkerProcess
from shardwright.schemas.errors import EngineError
from shardwright.schemas.plain_text import printable

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Number of items per converter that may wait for a slower one before them.
_WAITING_PER_CONVERTER = 32
_DIGEST_BYTES = 16


class WorkerPool:
    """Converts items in parallel, in order.

    Args:
      threads: Number of items that are converted at once.
      in_processes: Whether each of the threads has a worker process that does its work. A function must be
        picklable then. If a process crashes, only the item that it worked on is lost.
      preload: Module that worker processes import when they start; empty for none.
    """

    def __init__(self, threads: int, in_processes: bool, preload: str = "") -> None:
        self._threads = threads
        self.in_processes = in_processes
        self._preload = preload
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="shardwright-convert")
        self._processes: set[WorkerProcess] = set()
        #: Processes that wait for work; None for each one that could not be started.
        self._idle: queue.SimpleQueue[WorkerProcess | None] = queue.SimpleQueue()
        self._closed = False
        self._started = not in_processes
        self._starting = threading.Lock()

    def start(self) -> None:
        """Starts the worker processes, if there are any, before they are needed.

        Raises:
          EngineError: If no process can be started.
        """
        with self._starting:
            if not self._started:
                self._started = True
                for _ in range(self._threads):
                    self._start_process()

    def map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        weigh: Callable[[Item], int],
        crashed: Callable[[Item, str], Result] | None = None,
        max_items: int | None = None,
        max_weight: int = IN_FLIGHT_BYTES,
        chunk_items: int = CHUNK_ITEMS,
    ) -> Iterator[Result]:
        """Returns an iterator over the results of a function for each item, in order.

        Args:
          function: The function.
          items: Its arguments.
          weigh: Returns the number of bytes that an item takes until its result is consumed.
          crashed: Returns the result for an item whose conversion ended its process, from the item and the
            signal or exit code. Without it, such an end is an error.
          max_items: As in `ordered_map`; None for a number that keeps all of them busy.
          max_weight: As in `ordered_map`.
          chunk_items: As in `ordered_map`.

        Raises:
          EngineError: When iterated, if a worker process was killed.
        """
        run = each(function)
        if self.in_processes:
            self.start()
            run = partial(self._run_in_process, _packed(function), crashed)
        return ordered_map(
            run,
            items,
            self._executor,
            weigh=weigh,
            max_items=self._threads * _WAITING_PER_CONVERTER if max_items is None else max_items,
            max_weight=max_weight,
            chunk_items=chunk_items,
        )

    def call(
        self,
        function: Callable[..., Result],
        *args: Any,
        crashed: Callable[[str], Result],
    ) -> Result:
        """Runs a function in a worker process, also if threads convert, and returns its result.

        Args:
          function: The function.
          *args: Its arguments.
          crashed: Returns the result, from the signal or exit code, if the function ended the process.

        Raises:
          EngineError: If no process can be started, or it was killed.
        """
        with self._starting:
            if not self.in_processes and not self._processes:
                self._start_process()
        self.start()
        # The process may have been started when this one worked in another folder.
        packed = _packed(partial(_apply_in, os.getcwd(), function))
        (result,) = self._run_in_process(packed, lambda _, how: crashed(how), [args])
        return result

    def tasks(self) -> list[Task]:
        """Returns what the worker processes work on."""
        return [task for process in tuple(self._processes) if (task := process.task())]

    def close(self) -> None:
        """Ends the worker processes and the threads at once; what they work on fails."""
        self._closed = True
        for process in tuple(self._processes):
            process.kill()
        self._executor.shutdown(cancel_futures=True)
        for process in tuple(self._processes):
            process.close()

    def _start_process(self) -> None:
        """Starts a process for the next thread that needs one. If that fails, that thread tries again.

        Raises:
          EngineError: If no process can be started, or the pool is closed.
        """
        process: WorkerProcess | None = None
        try:
            if self._closed:
                raise EngineError("the conversion was ended.")
            process = WorkerProcess(self._threads, self._preload)
            self._processes.add(process)
        except OSError as error:
            raise EngineError(
                f"No worker process can be started ({error.strerror or error}); end other programs, or "
                "convert with --pool threads."
            ) from error
        finally:
            self._idle.put(process)

    def _run_in_process(
        self,
        function: PackedFunction,
        crashed: Callable[[Item, str], Result] | None,
        items: list[Item],
    ) -> list[Result]:
        """Runs a function for a chunk of items in a worker process.

        The items before and after one that ends the process are given to other processes.
        """
        if not items:
            return []
        while (process := self._idle.get()) is None:
            self._start_process()
        try:
            results = process.call(function, items)
        except WorkerDied as death:
            self._processes.discard(process)
            self._start_process()
            if crashed is None or death.item < 0 or not death.is_crash:
                raise EngineError(_explain(death)) from None
            run = partial(self._run_in_process, function, crashed)
            return [
                *run(items[: death.item]),
                crashed(items[death.item], death.how),
                *run(items[death.item + 1 :]),
            ]
        except BaseException:
            self._idle.put(process)
            raise
        self._idle.put(process)
        return results


def _packed(function: Callable[[Any], Any]) -> PackedFunction:
    data = pickle.dumps(function, pickle.HIGHEST_PROTOCOL)
    return PackedFunction(hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest(), data)


def _apply_in(folder: str, function: Callable[..., Result], args: tuple[Any, ...]) -> Result:
    os.chdir(folder)
    return function(*args)


def _explain(death: WorkerDied) -> str:
    """Returns the message of a run that a worker's end ends."""
    place = f" while it worked on {printable(death.task.place)} ({death.task.stage})" if death.task else ""
    if death.exit_code == -signal.SIGKILL:
        return (
            f"A worker process was killed (signal 9, SIGKILL){place}, probably because the machine ran out "
            "of memory; use a larger machine, then run again with --resume."
        )
    return (
        f"A worker process ended ({death.how}){place}; see the full log with --verbose, fix that and run "
        "again with --resume."
    )


_lock = threading.Lock()
_current: WorkerPool | None = None
_users = 0


@contextlib.contextmanager
def worker_pool(in_processes: bool, preload: str = "") -> Iterator[WorkerPool]:
    """Provides the pool of this process while the block runs. Blocks within it use the same one.

    Args:
      in_processes: Whether worker processes convert.
      preload: Module that they will need. They start and import it at once; otherwise when they are needed.
    """
    global _current, _users
    with _lock:
        if _current is None:
            _current = WorkerPool(usable_cpus() if in_processes else worker_threads(), in_processes, preload)
        used = _current
        _users += 1
    try:
        if preload:
            used.start()
        yield used
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _current = None
        if _current is not used:
            used.close()


def current_pool() -> WorkerPool:
    """Returns the pool of the command, or else that of this process."""
    return _current or _own_pool()


def call_in_process(function: Callable[..., Result], *args: Any, crashed: Callable[[str], Result]) -> Result:
    """Does what `WorkerPool.call` does, in a worker process of this process, even if threads convert.

    If threads convert, one process serves all commands, because it takes half a second to start. Without
    an interpreter that can be started, the function runs here.

    Raises:
      EngineError: If no process can be started, or it was killed.
    """
    if not sys.executable:
        return function(*args)
    used = _current if _current is not None and _current.in_processes else _own_pool()
    return used.call(function, *args, crashed=crashed)


def current_tasks() -> list[Task]:
    """Returns what the threads and the worker processes of this process work on."""
    return [*UNDERWAY.tasks(), *(_current.tasks() if _current else ())]


@lru_cache(1)
def _own_pool() -> WorkerPool:
    """Returns a pool for a process that an engine started, which ends with it.

    An engine mostly starts a process for each processor, so threads do the work unless `--pool` says
    otherwise.
    """
    own = WorkerPool(worker_threads(), values_of(job_options()).get("pool") == PROCESSES)
    atexit.register(own.close)
    watch_engine_worker(lambda: [*UNDERWAY.tasks(), *own.tasks()])
    return own


os.register_at_fork(after_in_child=_own_pool.cache_clear)  # a child would read answers to its parent
