"""What a rebuild says of itself: one log line for each stage, plain or as JSON.

The line is made where the stage ends, for on a service's workers it is the message itself that people find
in the log. `configure` shows the lines of this process; those of other machines are in their own logs.
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
#: What would end a line for some reader of it, or speak to a terminal: as text shows it, and as JSON does.
_CONTROLS = (*range(32), *range(127, 160), 0x2028, 0x2029)
_IN_TEXT = {code: repr(chr(code))[1:-1] for code in _CONTROLS}
_IN_JSON = {code: f"\\u{code:04x}" for code in _CONTROLS}
#: A name and a password in a web address, and what signs it.
_USER = re.compile(r"(https?://)[^/\s@]+@", re.IGNORECASE)
_QUERY = re.compile(r"(https?://[^\s?\"'<>]+\?)[^\s\"'<>]+", re.IGNORECASE)
#: The file that every entry of ours names as its place in a worker's log.
_THIS_FILE = "rebuild/events.py:"


class _Screen(logging.Handler):
    """Writes a line to what is stderr at that moment; a notebook replaces it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line in one piece and as UTF-8, whatever the locale of a scheduler is."""
        try:
            line = (self.format(record) + "\n").encode()
            stream = sys.stderr
            # Past a live line of progress only its own stand-in for stderr writes whole lines.
            buffer = None if hasattr(stream, "rich_proxied_file") else getattr(stream, "buffer", None)
            if buffer is None:
                stream.write(line.decode())
            else:
                stream.flush()
                buffer.write(line)
            stream.flush()
        except Exception:  # nobody reads the log: no reason to stop
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Says nothing, for there is nobody to say it to."""


def configure(shown: bool = True) -> None:
    """Shows the log lines of rebuilds on stderr, whatever the level of other loggers; again is the same.

    A command also shows those of worker processes on this machine (`pipelines/beam_patches.py`).

    Args:
      shown: false takes it back.
    """
    for handler in [*LOGGER.handlers]:
        if isinstance(handler, _Screen):
            LOGGER.removeHandler(handler)
    LOGGER.setLevel(logging.INFO if shown else logging.NOTSET)
    LOGGER.propagate = not shown  # or the root logger's handler shows it once more
    if shown:
        LOGGER.addHandler(_Screen())


def is_place_of_line(log_location: str) -> bool:
    """Whether an entry of a worker's log is a line of a rebuild, by the place in the code that it names."""
    return _THIS_FILE in log_location


def stage(task: RebuildTask, name: str, /, message: str = "", **facts: Any) -> None:
    """Logs that a stage of a rebuild has ended.

    Args:
      task: the rebuild.
      name: of the stage, such as `compared`.
      message: what there is to say, for people; made of the facts if there is none.
      facts: for programs.
    """
    seconds = round(max(time.time() - task.started, 0.0), 3)
    about = {"version": task.version, "output": task.output, "seconds": seconds}
    LOGGER.info("%s", line_of(task.log_format, "INFO", name, message, facts, about))


def failed(error: str, exit_code: int, **about: Any) -> None:
    """Logs the error that ends a run as a line of JSON; in text, the command itself says it.

    Args:
      error: the one sentence.
      exit_code: of the command.
      about: version, output and seconds, as far as they are known.
    """
    facts = {"error": error, "exit_code": exit_code}
    LOGGER.error("%s", line_of("json", "ERROR", "failed", "", facts, about))


def line_of(
    log_format: str, level: str, name: str, message: str, facts: Mapping[str, Any], about: Mapping[str, Any]
) -> str:
    """Returns a log line, without its end.

    Args:
      log_format: text or json.
      level: INFO or ERROR.
      name: of the stage.
      message: one for people; JSON has it beside the facts.
      facts: of the stage; none replaces what all lines have.
      about: what all lines of the run have; the text leaves it out.
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
    """Returns facts as JSON in one line that every parser reads, without secrets in web addresses."""
    return json.dumps(plain_value(facts), ensure_ascii=False, allow_nan=False).translate(_IN_JSON)


def plain_value(value: Any) -> Any:
    """Returns a value as JSON has it, whatever it is; numbers that JSON does not have become null."""
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
    """Returns a text that UTF-8 can hold."""
    return printable(text).encode("utf-8", "replace").decode()


def without_secrets(text: str) -> str:
    """Returns a text whose web addresses have lost their passwords and their queries, which may sign them."""
    if "://" not in text:
        return text
    return _QUERY.sub(r"\1...", _USER.sub(r"\1...@", text))


def one_line(text: str) -> str:
    """Returns a text in one line that speaks to no terminal, without secrets in web addresses."""
    return without_secrets(_sound(text)).translate(_IN_TEXT)


def _plain(value: Any) -> str:
    plain = plain_value(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
