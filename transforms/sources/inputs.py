"""Inputs as users name them: paths, with a prefix where there are several."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.transforms import storage

_NAMED = re.compile(r"([A-Za-z0-9_.-]+)=(.+)\Z", re.DOTALL)


class Input(NamedTuple):
    """One input: its path and what its keys begin with (empty, or `name/`)."""

    path: str
    prefix: str


def parse_input(text: str) -> Input:
    """Parses `PATH` or `NAME=PATH`; a path that exists as it stands is never taken apart."""
    match = _NAMED.match(text)
    if match and not storage.exists(text):
        return Input(match[2], f"{match[1]}/")
    return Input(text, "")


def check_inputs(texts: Sequence[str], output: str | None) -> tuple[Input, ...]:
    """Parses inputs and checks that they can be read and lie apart from the output.

    Raises:
      UsageError: naming the input and what to do.
    """
    inputs = tuple(parse_input(text) for text in texts)
    for item in inputs:
        if storage.is_remote(item.path):
            storage.require_known("--input", item.path)
            continue
        shown = printable(item.path)
        if not os.path.lexists(item.path):
            raise UsageError(f"--input {shown} does not exist; check the path.")
        if not os.path.isdir(item.path):
            raise UsageError(f"--input {shown} is no folder; name the folder that holds the images.")
        if not os.access(item.path, os.R_OK | os.X_OK):
            raise UsageError(f"--input {shown} cannot be read: permission denied.")
        if output and not storage.is_remote(output):
            inside, outside = os.path.realpath(output), os.path.realpath(item.path)
            if os.path.commonpath((inside, outside)) == outside:
                raise UsageError(
                    f"--output {printable(output)} lies inside --input {shown}; choose a place outside of it."
                )
            if os.path.commonpath((inside, outside)) == inside:
                raise UsageError(
                    f"--input {shown} lies inside --output {printable(output)}; choose another --output."
                )
    return inputs
