"""Watches a command from another process while a decoder holds Python's lock.

While C code holds that lock, no other Python code of its process runs: neither the handler of Ctrl-C nor the
watchdog's thread. So a command starts this file as a small, separate process. A board in shared memory says
which files the command is working on. Signals arrive by a pipe, to which the C part of Python's signal
handling writes. If the command neither ends nor watches itself, this process names the file and ends the
command.

It starts in milliseconds, because it imports only the standard library, and two files of this project that do
the same, by their paths.

Its arguments are the number of the command's process, the path of its board, the last words of an interrupted
command, how the command writes messages (`log.style`), and the pipes that end it with the exit codes 3 and
130 (0 for none). Its standard input is the pipe of the signals. When that closes, the command has ended.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).resolve().parent
_ENDING = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
#: Seconds after a signal until this process ends the command. The command's own threads act 0.5 s earlier.
PATIENCE_SECONDS = 4.5
#: Seconds without a look of the command's watchdog after which this process takes over.
SILENT_SECONDS = 3.0
#: Seconds after which a slow file is named, as in `watchdog.py`.
NAMED_AFTER = 30.0
_PAUSE_SECONDS = 0.5
#: Seconds for the C library to end the process before it is killed.
_EXIT_SECONDS = 0.3
_STUCK, _INTERRUPTED = 3, 130


def _load(path: Path) -> ModuleType:
    """Loads a file as a module without importing its package."""
    name = f"lock_watcher_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Watcher:
    """Watches one process.

    Args:
      pid: Number of the process.
      board: Path of its board.
      last_words: Message if it is interrupted.
      exits: Exit code -> pipe that ends the process with that code; 0 for none.
      style: How to write messages, as `log.style` returns it.
    """

    def __init__(
        self, pid: int, board: Path, last_words: str, exits: dict[int, int], style: str = "text"
    ) -> None:
        self._pid = pid
        self._board = board
        self._last_words = last_words
        self._exits = exits
        self._style = style
        self._underway = _load(_HERE.parent / "transforms" / "concurrency" / "underway.py")
        self._named: set[tuple[str, float]] = set()
        self._signalled_at = 0.0
        self._since = self._looked = time.monotonic()

    def watch(self) -> None:
        """Watches until the process has ended."""
        while True:
            readable, _, _ = select.select([0], [], [], _PAUSE_SECONDS)
            if readable:
                numbers = os.read(0, 4096)
                if not numbers:
                    return
                if not self._signalled_at and not _ENDING.isdisjoint(numbers):
                    self._signalled_at = time.monotonic()
            self._look()

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked > 10 * _PAUSE_SECONDS or self._is_stopped():
            self._since = now  # one of the two processes was stopped, so no file is stuck
        self._looked = now
        if self._signalled_at and now - self._signalled_at >= PATIENCE_SECONDS:
            self._end(self._last_words, _INTERRUPTED)
        content = self._board.read_bytes()
        watched, stuck_after = self._underway.head_of(content)
        if now - watched < SILENT_SECONDS:
            self._named.clear()
            return
        tasks = self._underway.tasks_on(content)
        for task in tasks:
            seconds = now - max(task.started, self._since)
            if seconds >= stuck_after:
                self._end(self._stuck(tasks, seconds), _STUCK)
            if seconds >= NAMED_AFTER and task[:2] not in self._named:
                self._named.add(task[:2])
                if "quiet" not in self._style:
                    place = _printable(task.place)
                    self._tell(f"{place} has taken {seconds:.0f} seconds so far ({task.stage})")

    def _stuck(self, tasks: list[tuple[str, str, float]], seconds: float) -> str:
        """Returns the message about files, one of which blocks all others."""
        names = [f"{_printable(place)} ({stage})" for place, stage, _ in tasks]
        which = names[0] if len(names) == 1 else f"one of {', '.join(names)}"
        return (
            f"stuck: {which} has taken {seconds / 60:.1f} minutes; to leave it out, move it out of the "
            "input, or else raise --stuck_after, then run again."
        )

    def _is_stopped(self) -> bool:
        """Returns whether the process is stopped, as by Ctrl-Z."""
        with contextlib.suppress(OSError, IndexError):
            return Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
        return False

    def _end(self, message: str, code: int) -> None:
        """Prints a message, then ends the process and its children."""
        self._tell(message, code)
        processes = _load(_HERE / "processes.py")
        for process in processes.descendants(self._pid):
            if process.pid != os.getpid() and (process.is_worker or process.is_child):
                process.send(signal.SIGKILL)
        if self._exits.get(code):
            with contextlib.suppress(OSError):
                os.write(self._exits[code], b"x")
                if select.select([0], [], [], _EXIT_SECONDS)[0] and not os.read(0, 4096):
                    sys.exit()
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)
        sys.exit()

    def _tell(self, message: str, exit_code: int = 0) -> None:
        """Prints a line as `log.py` does."""
        line = f"shardwright: {message}"
        if "json" in self._style:
            when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
            failure = {"stage": "failed", "error": message, "exit_code": exit_code} if exit_code else {}
            level = "ERROR" if exit_code else "INFO"
            line = json.dumps({"time": when, "level": level, "message": message, **failure})
        with contextlib.suppress(OSError):
            os.write(2, f"{line}\n".encode(errors="backslashreplace"))


def _printable(place: str) -> str:
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in place)


def main(argv: list[str]) -> None:
    """Watches the process that the arguments name."""
    pid, board, last_words, style, *pipes = argv
    exits = dict(zip((_STUCK, _INTERRUPTED), map(int, pipes)))
    with contextlib.suppress(OSError):  # the board goes where the command has ended
        Watcher(int(pid), Path(board), last_words, exits, style).watch()


if __name__ == "__main__":
    main(sys.argv[1:])
