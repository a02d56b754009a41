"""Log lines of a rebuild: one for each stage, as text or as JSON.

The text of the line is built where the stage ends, because on a service's workers people see only the
message in the log. `configure` shows the lines of this process. Other machines have their own logs.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import time
from collections.abc import Mapping, Set
from typing import Any

from shardwright.schemas.image_ref import printable
from shardwright.transforms.rebuild.task import RebuildTask

LOG_FORMATS = ("text", "json")
LOGGER = logging.getLogger("shardwright.rebuild")
#: Characters that end a line for some readers or control a terminal: as text shows them, and as JSON does.
_CONTROLS = (*range(32), *range(127, 160), 0x2028, 0x2029)
_IN_TEXT = {code: repr(chr(code))[1:-1] for code in _CONTROLS}
_IN_JSON = {code: f"\\u{code:04x}" for code in _CONTROLS}
#: A name and a password in a web address, and its query, which may contain a signature.
_USER = re.compile(r"(https?://)[^/\s@]+@", re.IGNORECASE)
_QUERY = re.compile(r"(https?://[^\s?\"'<>]+\?)[^\s\"'<>]+", re.IGNORECASE)
#: Source file that every such log entry names as its place in a worker's log.
_THIS_FILE = "rebuild/events.py:"


class _Screen(logging.Handler):
    """Writes a line to the current stderr; a notebook replaces it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line as a whole and as UTF-8, whatever the locale."""
        try:
            line = (self.format(record) + "\n").encode()
            stream = sys.stderr
            # During a live progress line, only its replacement of stderr writes whole lines.
            buffer = None if hasattr(stream, "rich_proxied_file") else getattr(stream, "buffer", None)
            if buffer is None:
                stream.write(line.decode())
            else:
                stream.flush()
                buffer.write(line)
            stream.flush()
        except Exception:  # a run does not stop because its log cannot be written
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Does nothing, because there is nobody to tell."""


def configure(shown: bool = True) -> None:
    """Shows the log lines of rebuilds on stderr at any log level. A repeated call changes nothing.

    A command also shows the lines of worker processes on this machine (`pipelines/beam_patches.py`).

    Args:
      shown: False to stop showing them.
    """
    for handler in [*LOGGER.handlers]:
        if isinstance(handler, _Screen):
            LOGGER.removeHandler(handler)
    LOGGER.setLevel(logging.INFO if shown else logging.NOTSET)
    LOGGER.propagate = not shown  # otherwise the root logger's handler shows the line again
    if shown:
        LOGGER.addHandler(_Screen())


def is_place_of_line(log_location: str) -> bool:
    """Returns whether an entry of a worker's log is a rebuild's line, by the code location that it names."""
    return _THIS_FILE in log_location


def stage(task: RebuildTask, name: str, /, message: str = "", **facts: Any) -> None:
    """Logs that a stage of a rebuild has ended.

    Args:
      task: The rebuild.
      name: Name of the stage, such as `compared`.
      message: Message for people. If empty, it is made from the facts.
      facts: Facts for programs.
    """
    seconds = round(max(time.time() - task.started, 0.0), 3)
    about = {"version": task.version, "output": task.output, "seconds": seconds}
    LOGGER.info("%s", line_of(task.log_format, "INFO", name, message, facts, about))


def failed(error: str, exit_code: int, **about: Any) -> None:
    """Logs the error that ends a run as a line of JSON. In text mode the command itself prints the error.

    Args:
      error: Error message, one sentence.
      exit_code: Exit code of the command.
      about: Version, output and seconds, if known.
    """
    facts = {"error": error, "exit_code": exit_code}
    LOGGER.error("%s", line_of("json", "ERROR", "failed", "", facts, about))


def line_of(
    log_format: str, level: str, name: str, message: str, facts: Mapping[str, Any], about: Mapping[str, Any]
) -> str:
    """Returns a log line without a line end.

    Args:
      log_format: Text or json.
      level: INFO or ERROR.
      name: Name of the stage.
      message: Message for people. JSON contains it beside the facts.
      facts: Facts of the stage. They never replace a field that all lines have.
      about: Fields of all lines of the run. The text form omits them.
    """
    if log_format != "json":
        said = message or ", ".join(f"{key} {_plain(value)}" for key, value in facts.items())
        return one_line(f"shardwright: {name}: {said}" if said else f"shardwright: {name}")
    now = time.time()
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03}Z"
    first = {"time": when, "level": level, "stage": name, **about}
    rest = {"message": message, **facts} if message else facts
    return dumps({**first, **{key: value for key, value in rest.items() if key not in first}})


def dumps(facts: Mapping[str, Any]) -> str:
    """Returns facts as one line of JSON that every parser reads, without secrets in web addresses."""
    return json.dumps(plain_value(facts), ensure_ascii=False, allow_nan=False).translate(_IN_JSON)


def plain_value(value: Any) -> Any:
    """Returns any value as a JSON value; numbers that JSON cannot express become null."""
    if isinstance(value, Mapping):
        return {without_secrets(_sound(str(key))): plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_value(item) for item in (sorted(value, key=str) if isinstance(value, Set) else value)]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return without_secrets(_sound(str(value)))


def _sound(text: str) -> str:
    """Returns a text that can be encoded as UTF-8."""
    return printable(text).encode("utf-8", "replace").decode()


def without_secrets(text: str) -> str:
    """Returns a text whose web addresses have no passwords and no queries (these may contain signatures)."""
    if "://" not in text:
        return text
    return _QUERY.sub(r"\1...", _USER.sub(r"\1...@", text))


def one_line(text: str) -> str:
    """Returns a text as one line without control characters and without secrets in web addresses."""
    return without_secrets(_sound(text)).translate(_IN_TEXT)


def _plain(value: Any) -> str:
    plain = plain_value(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
