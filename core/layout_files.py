"""Reads a custom layout if the settings name a file."""

from __future__ import annotations

from shardwright.core import storage
from shardwright.schemas.layouts import inline_layout, is_layout_file


def read_layout(value: str) -> str:
    """Returns a value of `--layout`, with the content of a file instead of its path for workers.

    Raises:
      UsageError: If the file cannot be read, or is wrong.
    """
    if not is_layout_file(value):
        return value
    from shardwright.schemas.configuration.layout_file import parse_layout_file  # imports YAML

    return inline_layout(parse_layout_file(storage.read_text("--layout", value), value))
