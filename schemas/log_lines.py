"""Lines of a log: as text or as JSON, and whole on stderr. `Forgiving` is an output that nobody may read.

Text is for people. JSON is for programs: one object on each line, with `time`, `level` and `message`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, NamedTuple, Self

from shardwright.schemas.plain_text import CONTROLS, escape_controls, printable

#: Errors of an output that is no longer read: a closed pipe, terminal or descriptor.
_UNREAD = (errno.EPIPE, errno.EIO, errno.EBADF)
LOG_FORMATS = ("text", "json")
#: Python's logger of warnings that are captured.
WARNINGS = "py.warnings"
_IN_JSON = {code: f"\\u{code:04x}" for code in CONTROLS}
#: A name and a password in a web address, and its query, which may contain a signature.
_USER = re.compile(r"(https?://)[^/\s@]+@", re.IGNORECASE)
_QUERY = re.compile(r"(https?://[^\s?\"'<>]+\?)[^\s\"'<>]+", re.IGNORECASE)


class StderrHandler(logging.Handler):
    """Writes a line to the current stderr; a notebook replaces it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line as a whole and as UTF-8 in every locale."""
        with contextlib.suppress(Exception):  # a run does not stop because its log cannot be written
            write_line(self.format(record))


class JsonHandler(StderrHandler):
    """Writes the records of Python's `logging` as lines of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns a line."""
        facts: dict[str, Any] = {"message": record.getMessage(), "logger": record.name}
        if record.exc_info:
            facts["traceback"] = logging.Formatter().formatException(record.exc_info)
        return json_line(record.levelname, facts, record.created)


class LogRules(NamedTuple):
    """What a process writes of the logs and warnings of libraries, and how.

    Attributes:
      level: Level of the root logger.
      is_json: Whether each is a line of JSON.
      warnings: Level of the logger that captures Python's warnings; None if Python prints them.
    """

    level: int
    is_json: bool
    warnings: int | None

    @classmethod
    def current(cls) -> Self:
        """Returns the rules of this process."""
        root = logging.getLogger()
        is_json = any(isinstance(handler, JsonHandler) for handler in root.handlers)
        is_captured = warnings.showwarning.__module__ == logging.__name__
        return cls(root.level, is_json, logging.getLogger(WARNINGS).level if is_captured else None)

    def apply(self) -> None:
        """Applies the rules to this process, which has no others."""
        root = logging.getLogger()
        root.setLevel(self.level)
        if self.is_json:
            root.addHandler(JsonHandler())
        if self.warnings is not None:
            logging.getLogger(WARNINGS).setLevel(self.warnings)
            logging.captureWarnings(True)


class Forgiving:
    """A stream that drops text that cannot be written, so that a closed output changes no result.

    Args:
      stream: A stream of text or bytes.
      tell: Called with the reason if the output is not just closed.
    """

    def __init__(self, stream: Any, tell: Callable[[str], None] = lambda _: None) -> None:
        self._stream = stream
        self._tell = tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def buffer(self) -> Forgiving:
        """The underlying stream of bytes."""
        return Forgiving(self._stream.buffer, self._tell)

    def write(self, data: Any) -> int:
        """Writes data, or drops it if it cannot be written."""
        self._try(self._stream.write, data)
        return len(data)

    def writelines(self, lines: Iterable[Any]) -> None:
        """Writes lines, or drops those that cannot be written."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Writes buffered data, or drops it if it cannot be written."""
        self._try(self._stream.flush)

    def _try(self, act: Callable[..., object], *data: Any) -> None:
        """Calls a function of the stream; after an error, the descriptor leads nowhere.

        This drops what is still buffered, too, and what child processes write.
        """
        try:
            act(*data)
        except OSError as error:
            with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())
            if error.errno not in _UNREAD:
                self._tell((error.strerror or str(error)).lower())


def write_line(line: str) -> None:
    """Writes a line to stderr as a whole and as UTF-8 in every locale."""
    stream = sys.stderr
    # During a live progress line, only its replacement of stderr writes whole lines.
    buffer = None if hasattr(stream, "rich_proxied_file") else getattr(stream, "buffer", None)
    if buffer is None:
        stream.write(line + "\n")
    else:
        stream.flush()
        buffer.write((line + "\n").encode())
    stream.flush()


def json_line(level: str, facts: Mapping[str, Any], now: float | None = None) -> str:
    """Returns a line of JSON without a line end.

    Args:
      level: INFO, WARNING or ERROR.
      facts: The other fields. They never replace the time and the level.
      now: Time of the line; None for the present.
    """
    now = time.time() if now is None else now
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03}Z"
    first = {"time": when, "level": level}
    return dumps({**first, **{key: value for key, value in facts.items() if key not in first}})


def dumps(facts: Mapping[str, Any]) -> str:
    """Returns facts as one line of JSON that every parser reads, without secrets in web addresses."""
    return json.dumps(plain_value(facts), ensure_ascii=False, allow_nan=False).translate(_IN_JSON)


def plain_value(value: Any) -> Any:
    """Returns any value as a JSON value; numbers that JSON cannot express become null."""
    if isinstance(value, Mapping):
        return {without_secrets(printable(str(key))): plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_value(item) for item in (sorted(value, key=str) if isinstance(value, Set) else value)]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return without_secrets(printable(str(value)))


def without_secrets(text: str) -> str:
    """Returns a text whose web addresses have no passwords and no queries (these may contain signatures)."""
    if "://" not in text:
        return text
    return _QUERY.sub(r"\1...", _USER.sub(r"\1...@", text))


def one_line(text: str) -> str:
    """Returns a text as one line without control characters and without secrets in web addresses."""
    return escape_controls(without_secrets(printable(text)))
