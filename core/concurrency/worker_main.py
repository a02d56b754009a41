"""The main program of a worker process (`worker_process.py`)."""

from __future__ import annotations

import contextlib
import pickle
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

from shardwright.core.concurrency.underway import UNDERWAY
from shardwright.core.concurrency.worker_process import Board, Channel
from shardwright.core.concurrency.workers import set_worker_processes


def serve(connection: int, board: int) -> None:
    """Runs the functions that the parent sends until it closes the connection or ends.

    Args:
      connection: Descriptor of a socket to the parent.
      board: Descriptor of the file of the `Board`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal
    parent = Channel(socket.socket(fileno=connection))
    UNDERWAY.board = Board(board)
    processes, preload = pickle.loads(parent.receive())
    set_worker_processes(processes)
    if preload:
        import_module(preload)
    functions: dict[bytes, Callable[[Any], Any]] = {}
    while True:
        try:
            request = parent.receive()
        except (EOFError, OSError):
            return
        answer = _run(functions, request, UNDERWAY.board)
        # What the function printed: the parent may end this process at any time after the answer.
        if sys.stdout:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
        parent.send(answer)


def _run(functions: dict[bytes, Callable[[Any], Any]], request: memoryview, board: Board) -> bytes:
    """Returns the pickled results of a call, and the exception that ended it, if any."""
    results: list[Any] = []
    failure: Exception | None = None
    try:
        digest, function, items = pickle.loads(request)
        if function:
            functions[digest] = pickle.loads(function)
        for number, item in enumerate(items):
            board.begin_item(number)
            results.append(functions[digest](item))
    except Exception as error:
        failure = error
        failure.add_note(f"In a worker process:\n{traceback.format_exc()}")
    board.begin_item(-1)
    if failure is not None:
        try:
            pickle.loads(pickle.dumps(failure))
        except Exception:  # an exception of another library may not survive this
            failure = RuntimeError(f"{type(failure).__name__}: {failure}")
    return pickle.dumps((results, failure), pickle.HIGHEST_PROTOCOL)
