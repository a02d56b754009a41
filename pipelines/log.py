"""What a command tells people and programs: its messages on stderr, and the JSON object on stdout.

Both streams may be closed, or no longer read, as in a pipe to `head`; that changes no exit code.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TextIO

from shardwright.schemas import __version__
from shardwright.schemas.log_lines import WARNINGS, Forgiving, JsonHandler, json_line, write_line
from shardwright.schemas.plain_text import escape_controls, printable

_PREFIX = "shardwright: "
FORMAT = "shardwright-result"
VERSION = 1


@dataclass
class _Log:
    """How this process writes messages; the notes and warnings of the command so far, if one runs."""

    is_json: bool = False
    is_quiet: bool = False
    messages: list[dict[str, str]] | None = None
    on_end: Callable[[str, int], None] | None = None


LOG = _Log()


@contextlib.contextmanager
def log_as(log_format: str, quiet: bool, on_end: Callable[[str, int], None] | None = None) -> Iterator[None]:
    """Writes the messages of a command while the block runs.

    Args:
      log_format: `text` or `json`. As JSON, Python's own log and warnings are lines of JSON, too.
      quiet: Whether to write nothing but errors.
      on_end: Called with the message and the exit code when the command ends.
    """
    before = dict(vars(LOG))
    vars(LOG).update(is_json=log_format == "json", is_quiet=quiet, messages=[], on_end=on_end)
    root, warned = logging.getLogger(), logging.getLogger(WARNINGS)
    handlers, level = root.handlers[:], warned.level
    follows = LOG.is_json or quiet
    if LOG.is_json:
        root.handlers = [JsonHandler()]
    if follows:
        warned.setLevel(logging.CRITICAL if quiet else logging.WARNING)
        logging.captureWarnings(True)
    try:
        yield
    finally:
        if follows:
            logging.captureWarnings(False)
            warned.setLevel(level)
            root.handlers = handlers
        vars(LOG).update(before)


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


def warning(*messages: str) -> None:
    """Writes what went wrong without ending the command."""
    for message in messages:
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
    if LOG.on_end is not None:
        LOG.on_end(message, exit_code)


def traceback(text: str) -> None:
    """Writes where an error was raised."""
    if LOG.is_json:
        write_line(json_line("ERROR", {"message": text.strip().rpartition("\n")[2], "traceback": text}))
    else:
        sys.stderr.write(text)


def _remember(level: str, message: str) -> None:
    if LOG.messages is not None:
        LOG.messages.append({"level": level, "message": printable(message)})


def _write(level: str, message: str, text: str, facts: dict[str, Any]) -> None:
    if LOG.is_quiet and level != "ERROR":
        return
    # Nothing depends on a message that cannot be written.
    with contextlib.suppress(OSError, ValueError):
        if LOG.is_json:
            write_line(json_line(level, {"message": message, **facts}))
        else:
            print(escape_controls(printable(text)), file=sys.stderr, flush=True)


def print_result(
    command: str, exit_code: int, error: str, fields: Mapping[str, Any], file: TextIO | None = None
) -> None:
    """Prints the object.

    Args:
      command: Name of the command, such as `convert`.
      exit_code: Its exit code.
      error: Why it is not 0, in one sentence; empty if it is.
      fields: Fields of the command; empty if it failed before it had a result.
      file: Stream to print to; stdout by default.

    Raises:
      ValueError: If a field of the command has the name of a field of all commands.
    """
    common = {
        "format": FORMAT,
        "version": VERSION,
        "shardwright_version": __version__,
        "command": command,
        "exit_code": int(exit_code),
        "error": printable(error) or None,
        "messages": LOG.messages or [],
    }
    if common.keys() & fields.keys():
        raise ValueError(f"{sorted(common.keys() & fields.keys())[0]!r} is a field of all commands")
    stream = file or sys.stdout
    # JSON has no word for NaN and infinity, so they become null.
    value = json.loads(
        json.dumps({**common, **fields}, default=lambda pairs: dict(pairs.items())),
        parse_constant=lambda _: None,
    )
    # Escapes are valid JSON in any encoding; what Python writes for characters without a code is not.
    encoding = (stream.encoding or "").lower().replace("-", "").replace("_", "")
    print(
        json.dumps(value, indent=2, ensure_ascii=encoding != "utf8", allow_nan=False), file=stream, flush=True
    )


@contextlib.contextmanager
def forgiving_streams() -> Iterator[None]:
    """Replaces stdout and stderr by forgiving streams while the block runs, and flushes them at its end.

    First opens /dev/null for standard input, output and error where they are closed. Otherwise the next
    opened file would get such a number, and libraries or child processes would write their output into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        # Python has no stream for a descriptor that was closed when Python started.
        out, err = (nowhere if stream is None else stream for stream in before)
        ours = [Forgiving(out, tell=lambda reason: info(f"the rest is not shown: {reason}.")), Forgiving(err)]
        sys.stdout, sys.stderr = ours
        try:
            yield
        finally:
            for stream in ours:
                stream.flush()
            sys.stdout, sys.stderr = before
