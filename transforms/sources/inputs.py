"""Inputs as users name them: paths, with a prefix where there are several."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from shardwright.schemas.errors import UsageError
from shardwright.schemas.image_ref import printable
from shardwright.transforms import storage

#: In `gs://BUCKET`.
_SLASHES_OF_BUCKET = 2
_NAMED = re.compile(r"([A-Za-z0-9_.-]+)=(.+)\Z", re.DOTALL)


class Input(NamedTuple):
    """One input: its path and what its keys begin with (empty, or `name/`)."""

    path: str
    prefix: str


def parse_input(text: str) -> Input:
    """Parses `PATH` or `NAME=PATH`; a path that exists as it stands is never taken apart."""
    match = _NAMED.match(text)
    if match and (storage.is_remote(text) or not os.path.lexists(text)):
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
            _check_remote(item.path)
        else:
            _check_local(item.path)
        if output:
            _check_apart(item.path, output)
    return inputs


def _check_local(path: str) -> None:
    shown = printable(path)
    if not os.path.lexists(path):
        raise UsageError(f"--input {shown} does not exist; check the path.")
    if not os.path.isdir(path):
        raise UsageError(f"--input {shown} is no folder; name the folder that holds the images.")
    if not os.access(path, os.R_OK | os.X_OK):
        raise UsageError(f"--input {shown} cannot be read: permission denied.")


def _check_apart(path: str, output: str) -> None:
    """Checks that neither of two places lies in the other."""
    ours, theirs = _folder(output), _folder(path)
    shown = printable(path)
    if ours.startswith(theirs):
        raise UsageError(
            f"--output {printable(output)} lies inside --input {shown}; choose a place outside of it."
        )
    if theirs.startswith(ours):
        raise UsageError(
            f"--input {shown} lies inside --output {printable(output)}; choose another --output."
        )


def _folder(path: str) -> str:
    """Returns a path as all that lies in it begins."""
    return (path if storage.is_remote(path) else os.path.realpath(path)).rstrip("/") + "/"


def _check_remote(path: str) -> None:
    """Checks with one short listing that there is something in a remote input."""
    with storage.faults("list", path):
        if next(storage.list_objects(path), None) is not None:
            return
        shown = printable(path)
        if path.rstrip("/").count("/") > _SLASHES_OF_BUCKET and storage.stat(path.rstrip("/")) is not None:
            raise UsageError(f"--input {shown} is no folder; name the folder that holds the images.")
    raise UsageError(f"--input {shown} does not exist: no object lies in it; check the path.")
