"""The JSON object that a command prints with `--json`: one for each run, whether it succeeds or fails.

`json_schemas/result.schema.json` describes it, and docs/scripting.md explains it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from shardwright.pipelines import log
from shardwright.schemas import __version__
from shardwright.schemas.image_ref import printable

FORMAT = "shardwright-result"
VERSION = 1


def result_object(command: str, exit_code: int, error: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the object.

    Args:
      command: Name of the command, such as `convert`.
      exit_code: Its exit code.
      error: Why it is not 0, in one sentence; empty if it is.
      fields: Fields of the command; empty if it failed before it had a result.

    Raises:
      ValueError: A field of the command has the name of a field of all commands.
    """
    common = {
        "format": FORMAT,
        "version": VERSION,
        "shardwright_version": __version__,
        "command": command,
        "exit_code": int(exit_code),
        "error": printable(error) or None,
        "messages": [message._asdict() for message in log.messages()],
    }
    if common.keys() & fields.keys():
        raise ValueError(f"{sorted(common.keys() & fields.keys())[0]!r} is a field of all commands")
    return {**common, **fields}


def print_result(
    command: str, exit_code: int, error: str, fields: Mapping[str, Any], file: TextIO | None = None
) -> None:
    """Prints the object.

    Args:
      command: Name of the command.
      exit_code: Its exit code.
      error: Why it is not 0; empty if it is.
      fields: Fields of the command.
      file: Stream to print to; stdout by default.
    """
    stream = file or sys.stdout
    value = _plain(result_object(command, exit_code, error, fields))
    # Escapes are valid JSON in any encoding; what Python writes for characters without a code is not.
    encoding = (stream.encoding or "").lower().replace("-", "").replace("_", "")
    print(
        json.dumps(value, indent=2, ensure_ascii=encoding != "utf8", allow_nan=False), file=stream, flush=True
    )


def _plain(value: Any) -> Any:
    """Returns a value whose numbers JSON can express; others become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
