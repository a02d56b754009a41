"""The messages of a command on stderr: text, or JSON (`--log_format json`), or only errors (`--quiet`)."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from shardwright.schemas.image_ref import printable
from shardwright.schemas.log_lines import JsonFormatter, StderrHandler, json_line, write_line
from shardwright.schemas.plain_text import escape_controls

_PREFIX = "shardwright: "
_WARNINGS = "py.warnings"


class Message(NamedTuple):
    """A note or a warning of a command.

    Attributes:
      level: `note` or `warning`.
      message: One sentence.
    """

    level: str
    message: str


class _Log:
    """How this process writes messages; the notes and warnings of the command so far, if one runs."""

    def __init__(self) -> None:
        self.is_json = False
        self.is_quiet = False
        self.messages: list[Message] | None = None
        self.on_end: Callable[[str, int], None] | None = None


_LOG = _Log()


@contextlib.contextmanager
def log_as(log_format: str, quiet: bool, on_end: Callable[[str, int], None] | None = None) -> Iterator[None]:
    """Writes the messages of a command while the block runs.

    Args:
      log_format: `text` or `json`. As JSON, Python's own log and warnings are lines of JSON, too.
      quiet: Whether to write nothing but errors.
      on_end: Called with the message and the exit code when the command ends.
    """
    before = dict(vars(_LOG))
    vars(_LOG).update(is_json=log_format == "json", is_quiet=quiet, messages=[], on_end=on_end)
    try:
        with _python_log(_LOG.is_json, quiet):
            yield
    finally:
        vars(_LOG).update(before)


@contextlib.contextmanager
def _python_log(as_json: bool, quiet: bool) -> Iterator[None]:
    """Has Python's log and warnings follow the format while the block runs."""
    if not (as_json or quiet):
        yield
        return
    root, warned = logging.getLogger(), logging.getLogger(_WARNINGS)
    before, level = root.handlers[:], warned.level
    if as_json:
        handler = StderrHandler()
        handler.setFormatter(JsonFormatter())
        root.handlers = [handler]
    warned.setLevel(logging.CRITICAL if quiet else logging.WARNING)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        warned.setLevel(level)
        root.handlers = before


def is_json() -> bool:
    """Returns whether messages are lines of JSON."""
    return _LOG.is_json


def is_quiet() -> bool:
    """Returns whether only errors are written."""
    return _LOG.is_quiet


def messages() -> tuple[Message, ...]:
    """Returns the notes and warnings of the command so far, also those that `--quiet` hides."""
    return tuple(_LOG.messages or ())


def info(message: str, **facts: Any) -> None:
    """Writes what the command does.

    Args:
      message: One sentence, or a part of one.
      facts: Fields for programs; only JSON contains them.
    """
    _write("INFO", message, _PREFIX + message, facts)


def about(place: str, message: str) -> None:
    """Writes how the command understood a file or a folder."""
    _write("INFO", message, f"{printable(place)}: {message}", {"place": printable(place)})


def note(message: str, written: bool = False) -> None:
    """Writes that something is odd, such as an option without an effect.

    Args:
      message: One sentence.
      written: Whether the caller has written it, so that it is only remembered for `messages`.
    """
    _remember("note", message)
    if not written:
        _write("INFO", message, f"{_PREFIX}note: {message}", {"stage": "note"})


def warning(message: str) -> None:
    """Writes that something went wrong that does not end the command."""
    _remember("warning", message)
    _write("WARNING", message, f"{_PREFIX}warning: {message}", {"stage": "warning"})


def end(message: str, exit_code: int) -> None:
    """Writes how the command ends.

    Args:
      message: The error; with the exit code 0 a note, or empty.
      exit_code: Exit code of the command.
    """
    if exit_code:
        facts = {"stage": "failed", "error": message, "exit_code": exit_code}
        _write("ERROR", message, _PREFIX + message, facts)
    elif message:
        note(message)
    if _LOG.on_end is not None:
        _LOG.on_end(message, exit_code)


def traceback(text: str) -> None:
    """Writes where an error was raised."""
    if _LOG.is_json:
        write_line(json_line("ERROR", {"message": text.strip().rpartition("\n")[2], "traceback": text}))
    else:
        sys.stderr.write(text)


def _remember(level: str, message: str) -> None:
    if _LOG.messages is not None:
        _LOG.messages.append(Message(level, printable(message)))


def _write(level: str, message: str, text: str, facts: dict[str, Any]) -> None:
    if _LOG.is_quiet and level != "ERROR":
        return
    # Nothing depends on a message that cannot be written.
    with contextlib.suppress(OSError, ValueError):
        if _LOG.is_json:
            write_line(json_line(level, {"message": message, **facts}))
        else:
            print(escape_controls(printable(text)), file=sys.stderr, flush=True)
