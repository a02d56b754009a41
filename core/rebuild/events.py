"""Log lines of a rebuild: one for each stage, as text or as JSON.

The text of the line is built where the stage ends, because on a service's workers people see only the
message in the log. `configure` shows the lines of this process. Other machines have their own logs.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shardwright.schemas.log_lines import StderrHandler, json_line, one_line, plain_value

if TYPE_CHECKING:
    from shardwright.core.rebuild.task import RebuildTask

LOGGER = logging.getLogger("shardwright.rebuild")
#: Source file that every such log entry names as its place in a worker's log.
_THIS_FILE = "rebuild/events.py:"


def configure(shown: bool = True) -> None:
    """Shows the log lines of rebuilds on stderr at any log level. A repeated call changes nothing.

    A command also shows the lines of worker processes on this machine (`pipelines/quiet_beam.py`).

    Args:
      shown: False to stop showing them.
    """
    for handler in [*LOGGER.handlers]:
        if isinstance(handler, StderrHandler):
            LOGGER.removeHandler(handler)
    LOGGER.setLevel(logging.INFO if shown else logging.NOTSET)
    LOGGER.propagate = not shown  # otherwise the root logger's handler shows the line again
    if shown:
        LOGGER.addHandler(StderrHandler())


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


def line_of(
    log_format: str, level: str, name: str, message: str, facts: Mapping[str, Any], about: Mapping[str, Any]
) -> str:
    """Returns a log line without a line end.

    Args:
      log_format: Text or json.
      level: INFO or ERROR.
      name: Name of the stage.
      message: Message for people. If empty, it is made from the facts.
      facts: Facts of the stage. They never replace a field that all lines have.
      about: Fields of all lines of the run. The text form omits them.
    """
    text = message or ", ".join(f"{key} {_plain(value)}" for key, value in facts.items())
    if log_format != "json":
        return one_line(f"shardwright: {name}: {text}" if text else f"shardwright: {name}")
    first = {"stage": name, **about, "message": text or name}
    return json_line(level, {**first, **{key: value for key, value in facts.items() if key not in first}})


def _plain(value: Any) -> str:
    plain = plain_value(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
